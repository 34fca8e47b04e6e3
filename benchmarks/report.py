"""The tables of docs/performance.md and the README: `python -m benchmarks.report [bench.json]`.

With a file, that run is kept as docs/performance.json first; of one that has some chapters only,
those take the place of the kept ones. The table of the door is of docs/door.json, if that is there.
A test proves that the pages say what is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.door import Outcome
from benchmarks.figures import Figure, Goal, rounded
from benchmarks.rows import BESIDE, GOALS, HEADLINES, OTHERS, Row

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "performance.json"
DOOR = ROOT / "docs" / "door.json"
PERFORMANCE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
NOTHING = "–"
HEAD = ("figure", "SQLite", "PostgreSQL")

Figures = Mapping[str, Figure]
DOOR_HEAD = (
    "attack",
    "store",
    "collector",
    "tried",
    "wrong",
    "peak of memory",
    "beats' p50",
    "p99",
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", required=False, type=click.Path(path_type=Path, exists=True))
def report(run: Path | None) -> None:
    """Write the pages' tables from the run that is kept, or keep this one first."""
    document = json.loads(KEPT.read_text())
    if run is not None:
        newest = json.loads(run.read_text())
        document = {**newest, "chapters": document["chapters"] | newest["chapters"]}
    texts = pages(document)
    KEPT.write_text(json.dumps(document, indent=2) + "\n")
    for page, text in texts.items():
        page.write_text(text)


def pages(document: Mapping[str, Any] | None = None) -> dict[Path, str]:
    """Every page with its tables as they ought to be, of that run or of the one that is kept."""
    found = figures_of(document or json.loads(KEPT.read_text()))
    beside = BESIDE if _names(BESIDE) & found.keys() else ()
    if missing := sorted(_names((*GOALS, *OTHERS, *HEADLINES, *beside)) - found.keys()):
        raise click.ClickException(f"the run has no figure {missing[0]!r}")
    tables = {
        PERFORMANCE: {
            "goals": _goals(found, GOALS),
            "others": _table(found, OTHERS),
            "beside": _goals(found, beside) if beside else "",
            "door": _door(),
        },
        README: {"speed": _table(found, HEADLINES)},
    }
    return {page: _filled(page.read_text(), each) for page, each in tables.items()}


def _names(rows: Sequence[Row]) -> set[str]:
    return {name for row in rows for name in (*row.sqlite, *row.postgres)}


def figures_of(document: Mapping[str, Any]) -> Figures:
    """What that run has found, by name."""
    chapters = document["chapters"].values()
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


def _door() -> str:
    """Return what the proof of the door has found, if that is kept."""
    if not DOOR.exists():
        return ""
    outcomes = [Outcome(**each) for each in json.loads(DOOR.read_text())["outcomes"]]
    lines = [_line(*DOOR_HEAD), _line(*["---"] * len(DOOR_HEAD))]
    return "".join(lines + [_line(*each.row()[: len(DOOR_HEAD)]) for each in outcomes])


def _goals(found: Figures, rows: Sequence[Row]) -> str:
    lines = [_line(*HEAD, "goal", ""), _line(*["---"] * 5)]
    for row in rows:
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
