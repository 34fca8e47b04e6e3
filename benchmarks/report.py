"""The tables of docs/performance.md and the README: `python -m benchmarks.report [bench.json]`.

With a file, that run is kept as docs/performance.json first. A test proves that the pages say what
is kept there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.figures import Figure, Goal, rounded

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "performance.json"
PERFORMANCE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
NOTHING = "–"
HEAD = ("figure", "SQLite", "PostgreSQL")

Figures = Mapping[str, Figure]


@dataclass(frozen=True)
class Row:
    """What a table says of both stores; several figures stand in one cell, in turn."""

    label: str
    sqlite: Sequence[str]
    postgres: Sequence[str]


def _both(label: str, *names: str) -> Row:
    """The same figures of each store, by the two names that chapters have for it."""
    return Row(
        label,
        [name.format(store="SQLite", kind="selfhosted") for name in names],
        [name.format(store="PostgreSQL", kind="cloud") for name in names],
    )


def _one(label: str, *names: str) -> Row:
    """Of code that is the same for both."""
    return Row(label, names, ())


_PEER = "{{store}} over {connections} connections: times the peer with {size} workers over 4"
_COLD = "{{kind}} at {pace} of its most: {what}"
_SERVED, _KEPT_UP = (
    "1,000 cold keys served, times bare argon2",
    "known keys' beats that keep up meanwhile",
)
_FLOOD = "{{kind}}: beats beside a flood of {wrong}, of without"
_FOLLOWED = "{kind}, 1,000 subscribers, 5% changes: beats, of without"
_DELIVERY = "{} deliveries/s: processor time of one, of plain sse-starlette's"
_NO_OP = "a no-op Starlette route at 70% of its most: {}"
_PACED = "{{store}} at 70% of its most: {}"

GOALS = (
    _both("beats a second, of a no-op Starlette route", "{store}: of a no-op Starlette route"),
    _both("the same, of a no-op raw ASGI function", "{store}: of a no-op raw ASGI app"),
    _both(
        "with 1,000,000 workers in the store, of with 100",
        "{store}: with 1,000,000 workers, of with 100 workers",
    ),
    *(
        _both(
            f"times the peer with {size} workers, 4 connections each",
            _PEER.format(connections=4, size=size),
        )
        for size in ("10", "1,000")
    ),
    _both("p99 of p50 at 70% of the most, from when a beat was due", _PACED.format("p99 of p50")),
    *(
        _both(f"{label} {share} of the most", _COLD.format(pace=pace, what=what))
        for pace, share in (("25%", "a quarter"), ("50%", "half"))
        for what, label in (
            (_SERVED, "1,000 cold keys served, times bare argon2, beside"),
            (_KEPT_UP, "known keys' beats that keep up meanwhile, at"),
        )
    ),
    *(
        _both(f"beats beside a flood of {wrong}, of without", _FLOOD.format(wrong=wrong))
        for wrong in (
            "unknown keys",
            "wrong secrets of keys in use",
            "wrong secrets of unused keys",
        )
    ),
    _both(
        "roster of 10,000 whole, of the bare SQL and encoding",
        "{kind}: 10,000 workers whole, of bare",
    ),
    _both(
        "the same in pages of 500, of bare pages",
        "{kind}: in pages of 500, of bare in the same pages",
    ),
    _one(
        "processor time of a delivery, of plain sse-starlette's, at 40,000 a second",
        _DELIVERY.format("40,000"),
    ),
    _one("the same at 10,000 a second", _DELIVERY.format("10,000")),
    _both(
        "memory with 100,000 live workers, of with 100",
        "{store}: memory with 100,000 live workers, of with 100",
    ),
    _both("beats with 1,000 subscribers and 5% changes, of without", _FOLLOWED),
)
OTHERS = (
    _both("beats a second on this machine", "{store}: beats a second"),
    _both(
        "processor time a beat of the process that answers, of a no-op route's",
        "{store}: processor time of the answering process a beat, of a no-op route's",
    ),
    _both("of a no-op ASGI endpoint in the same router", "{store}: of a no-op ASGI endpoint"),
    Row(
        "times one upsert a request; times the same, prepared on 16 connections",
        ["SQLite: times one upsert a request"],
        ["PostgreSQL: times one upsert a request", "PostgreSQL: times the same, prepared"],
    ),
    Row(
        "processor time a beat, of the collector's processes; of PostgreSQL",
        ["SQLite: processor time of the collector a beat"],
        [
            "PostgreSQL: processor time of the collector a beat",
            "PostgreSQL: processor time of PostgreSQL a beat",
        ],
    ),
    Row(
        "bytes written a beat: pages of SQLite's log, records of PostgreSQL's",
        ["SQLite: bytes written a beat"],
        ["PostgreSQL: bytes of WAL a beat"],
    ),
    _both("p50; p99; p99.9 at 70% of the most", *map(_PACED.format, ("p50", "p99", "p99.9"))),
    _one("the same of a no-op route", *map(_NO_OP.format, ("p50", "p99", "p99.9"))),
    _one("p99 of p50 of a no-op route", _NO_OP.format("p99 of p50")),
    _both(
        "over 64 connections, times the peer over 4, with 10 workers; with 1,000",
        *(_PEER.format(connections=64, size=size) for size in ("10", "1,000")),
    ),
    _both(
        "with 10,000 workers in the store; with 100,000, of with 100",
        "{store}: with 10,000 workers, of with 100 workers",
        "{store}: with 100,000 workers, of with 100 workers",
    ),
    _both(
        "with 1 tenant; with 10,000, of with 50",
        "{store}: with 1 tenant, of with 50",
        "{store}: with 10,000 tenants, of with 50",
    ),
    _both(
        "5% of the beats change something; 50%, of none",
        "{store}: 5% of the beats change something, of none",
        "{store}: 50% of the beats change something, of none",
    ),
    _both(
        "while a roster of 10,000 is read without a pause, of without; rosters a second",
        "{store}: with a roster being read of 10,000 workers, of without",
        "{store}: such rosters a second",
    ),
    _both("roster of 10,000 whole", "{kind}: whole"),
    _both(
        "beats with 1,000 told of 40 changes a second, of without; deliveries a second",
        "{kind}, 1,000 told of 40 changes/s: beats, of without",
        "{kind}, 1,000 told of 40 changes/s: deliveries",
    ),
    _one(
        "99% of deliveries within, at 10,000 a second; plain sse-starlette's",
        "10,000 deliveries/s: 99% within",
        "10,000 deliveries/s: 99% within, plain",
    ),
    _both(
        "10,000 workers that die within a second: until the last is told, after its TTL",
        "{kind}: 10,000 told lost after the TTL; the tick is 1 s",
    ),
    _both(
        "beats of the living meanwhile, of before",
        "{kind}: beats of the living meanwhile, of before",
    ),
    Row(
        "two processes, of one, on two cores for everything",
        (),
        ["PostgreSQL: 2 processes, of 1, on 2 cores for everything"],
    ),
)
HEADLINES = (
    _both(
        "durable beats a second, of a no-op Starlette route's requests",
        "{store}: of a no-op Starlette route",
    ),
    _both(
        "processor time of the process that answers them, of a no-op Starlette route's",
        "{store}: processor time of the answering process a beat, of a no-op route's",
    ),
    _both("durable beats, times one upsert a request", "{store}: times one upsert a request"),
    _both(
        "the same, times the open-source peer with 1,000 workers, at equal concurrency",
        _PEER.format(connections=4, size="1,000"),
    ),
    _both(
        "with 100,000 workers in the store, of with 100",
        "{store}: with 100,000 workers, of with 100 workers",
    ),
    _both(
        "memory with 100,000 live workers, of with 100",
        "{store}: memory with 100,000 live workers, of with 100",
    ),
    _both(
        "beats of known keys beside a flood of unknown ones, of without",
        _FLOOD.format(wrong="unknown keys"),
    ),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", required=False, type=click.Path(path_type=Path, exists=True))
def report(run: Path | None) -> None:
    """Write the pages' tables from the run that is kept, or keep this one first."""
    run = run or KEPT
    measured, texts = run.read_text(), pages(run)
    KEPT.write_text(measured)
    for page, text in texts.items():
        page.write_text(text)


def pages(run: Path = KEPT) -> dict[Path, str]:
    """Every page with its tables as they ought to be."""
    found = figures_of(run)
    if missing := sorted(_shown() - found.keys()):
        raise click.ClickException(f"the run has no figure {missing[0]!r}")
    tables = {
        PERFORMANCE: {"goals": _goals(found), "others": _table(found, OTHERS)},
        README: {"speed": _table(found, HEADLINES)},
    }
    return {page: _filled(page.read_text(), each) for page, each in tables.items()}


def _shown() -> set[str]:
    rows = (*GOALS, *OTHERS, *HEADLINES)
    return {name for row in rows for name in (*row.sqlite, *row.postgres)}


def figures_of(run: Path) -> Figures:
    """What that run has found, by name."""
    chapters = json.loads(run.read_text())["chapters"].values()
    return {each["name"]: _figure(each) for figures in chapters for each in figures}


def _figure(said: Mapping[str, object]) -> Figure:
    goal = said["goal"] and Goal(**said["goal"])  # type: ignore[arg-type]
    return Figure(said["name"], said["values"], goal or None, said["unit"])  # type: ignore[arg-type]


def _filled(page: str, tables: Mapping[str, str]) -> str:
    for name, text in tables.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->\n")
        if not (begin and end):
            raise click.ClickException(f"a page has no place for its table of {name}")
        page = before + begin + text + end + after
    return page


def _goals(found: Figures) -> str:
    lines = [_line(*HEAD, "goal", ""), _line(*["---"] * 5)]
    for row in GOALS:
        figures = [found[name] for name in (*row.sqlite, *row.postgres)]
        cells = [_cell(found, names, _with_spread) for names in (row.sqlite, row.postgres)]
        goals = dict.fromkeys(str(each.goal) for each in figures)
        lines.append(_line(row.label, *cells, " · ".join(goals), _verdict(figures)))
    return "".join(lines)


def _verdict(figures: Sequence[Figure]) -> str:
    met = [each.met for each in figures]
    if len(set(met)) == 1:
        return "met" if met[0] else "missed"
    return f"met on {HEAD[1:][met.index(True)]}"


def _table(found: Figures, rows: Sequence[Row]) -> str:
    lines = [_line(*HEAD), _line(*["---"] * 3)]
    for row in rows:
        lines.append(
            _line(row.label, *(_cell(found, names, _plain) for names in (row.sqlite, row.postgres)))
        )
    return "".join(lines)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _cell(found: Figures, names: Sequence[str], show: Callable[[Figure], str]) -> str:
    return "; ".join(show(found[name]) for name in names) or NOTHING


def _plain(figure: Figure) -> str:
    return f"{rounded(figure.median)} {figure.unit}".strip()


def _with_spread(figure: Figure) -> str:
    if len(figure.values) == 1:
        return _plain(figure)
    least, most = rounded(min(figure.values)), rounded(max(figure.values))
    return f"{_plain(figure)} ({least}–{most})"


if __name__ == "__main__":
    report(prog_name="python -m benchmarks.report")
