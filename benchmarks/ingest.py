"""Heartbeats a second on each store, as ratios: absolute figures move from machine to machine."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks import processes, wrk
from benchmarks.contenders import GROUP, NO_OP, ONE_BY_ONE, WAYS, Contender, Name, contenders
from benchmarks.fleet import TENANTS, WORKERS
from benchmarks.places import KINDS, Kind, Places, places
from collector.cli.tables import table

GOAL = 4
WARM_UP_SECONDS = 2

EXAMPLES = """
\b
Examples:
  python -m benchmarks.ingest
  python -m benchmarks.ingest --repetitions 3 --seconds 2 --store selfhosted --changes 0
  python -m benchmarks.ingest --json ingest.json

\b
Exit codes:
  0 goal met, 1 not met or void, 2 wrong usage, 3 wrk is missing
"""

Rates = Mapping[Name, float]


@dataclass(frozen=True)
class Ratio:
    """Each repetition gives one ratio, of windows next to one another; noise hits both alike."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, repetitions: Sequence[Rates], above: Name, below: Name) -> Ratio:
        ratios = [each[above] / each[below] for each in repetitions]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}–{self.most:.2f})"


@dataclass(frozen=True)
class Figure:
    """One store under one kind of load."""

    store: Kind
    changes_percent: int
    of_no_op: Ratio
    one_by_one_of_no_op: Ratio
    of_one_by_one: Ratio
    of_prepared: Ratio
    beats_a_second: int

    @property
    def met(self) -> bool:
        return self.of_one_by_one.median >= GOAL


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repetitions", default=8, show_default=True, type=click.IntRange(1))
@click.option(
    "--seconds",
    default=5,
    show_default=True,
    type=click.IntRange(1, 30),
    help="A window; in a longer one slow variants would lose workers to their 45 s.",
)
@click.option(
    "--store", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, help="Only this."
)
@click.option(
    "--changes",
    multiple=True,
    default=(0, 5),
    show_default=True,
    type=click.IntRange(0, 100),
    help="How many beats of a hundred change something; may be repeated.",
)
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="For the stores.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the figures here.")
def ingest(
    repetitions: int,
    seconds: int,
    kinds: tuple[Kind, ...],
    changes: tuple[int, ...],
    directory: Path | None,
    report: Path | None,
) -> None:
    """Measure the collector as users run it, against a no-op and against one upsert a request.

    One upsert a request is SQLAlchemy Core with a pool of 16 on PostgreSQL, and the store's own
    statement on SQLite; `prepared` is the fastest way to do that: 16 connections of asyncpg with
    the statement prepared.

    The variants take turns, so that a noisy neighbour meets them all. A ratio is the median over
    the repetitions, with the least and the most.
    """
    wrk.require()
    processes.end_on_sigterm()
    figures: list[Figure] = []
    with places(directory) as where:
        for percent in changes:
            rates = asyncio.run(_measure(where, kinds, percent, repetitions, seconds))
            figures += [_figure(rates, kind, percent) for kind in kinds]
    _show(figures)
    if report is not None:
        rows = [asdict(each) | {"goal": GOAL, "met": each.met} for each in figures]
        report.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(0 if all(each.met for each in figures) else 1)


async def _measure(
    where: Places, kinds: tuple[Kind, ...], percent: int, repetitions: int, seconds: int
) -> list[Rates]:
    one_in = round(100 / percent) if percent else 0
    click.echo(f"{percent}% of the beats change something: starting the servers", err=True)
    async with contenders(where, kinds, one_in) as running:
        for each in running:
            await each.rate(WARM_UP_SECONDS)
        return [await _take_turns(running, n, seconds) for n in range(repetitions)]


async def _take_turns(running: list[Contender], repetition: int, seconds: int) -> Rates:
    """One window each. Another one begins every time, so that nobody always follows the same."""
    first = repetition % len(running)
    rates: dict[Name, float] = {}
    for each in (*running[first:], *running[:first]):
        rates[each.name] = await each.rate(seconds)
        said = " ".join(filter(None, each.name))
        click.echo(f"repetition {repetition + 1}: {said}: {rates[each.name]:.0f}/s", err=True)
    return rates


def _figure(rates: Sequence[Rates], kind: Kind, percent: int) -> Figure:
    group, single, ceiling = (kind, GROUP), (kind, ONE_BY_ONE), (None, NO_OP)
    return Figure(
        store=kind,
        changes_percent=percent,
        of_no_op=Ratio.of(rates, group, ceiling),
        one_by_one_of_no_op=Ratio.of(rates, single, ceiling),
        of_one_by_one=Ratio.of(rates, group, single),
        of_prepared=Ratio.of(rates, group, (kind, WAYS[kind][-1])),
        beats_a_second=round(statistics.median(each[group] for each in rates)),
    )


def _show(figures: list[Figure]) -> None:
    click.echo(
        f"{WORKERS} workers of {TENANTS} tenants over {wrk.CONNECTIONS} connections; "
        "median (least–most) of the repetitions' ratios\n"
    )
    heads = (
        *("STORE", "BEATS THAT CHANGE", "OF A NO-OP", "ONE UPSERT A REQUEST, OF A NO-OP"),
        *("TIMES ONE UPSERT A REQUEST", f"GOAL {GOAL}", "TIMES THE SAME, PREPARED"),
        "BEATS/S HERE",
    )
    rows = [
        (
            each.store,
            f"{each.changes_percent}%",
            *map(str, (each.of_no_op, each.one_by_one_of_no_op, each.of_one_by_one)),
            "met" if each.met else "not met",
            str(each.of_prepared),
            str(each.beats_a_second),
        )
        for each in figures
    ]
    table(heads, rows, empty="Nothing was measured.")


if __name__ == "__main__":
    ingest()
