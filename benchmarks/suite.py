"""All that is claimed of speed, measured: `python -m benchmarks.suite`, or `make bench`.

A chapter is a module of its own with one coroutine, `measure(bench)`. Within it the variants take
turns, so that a noisy neighbour meets them all; a reference is never tuned. Nothing here fails on a
figure: a goal that is missed is told as such.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from benchmarks import processes, wrk
from benchmarks.figures import Figure
from benchmarks.places import Places, places
from collector.cli.tables import table

CHAPTERS = (
    "ingest",
    "growth",
    "keys",
    "roster",
    "feed",
    "silence",
    "processes",
    "quotas",
    "neighbours",
)
# Those that need neither waiting nor crowds.
QUICK_CHAPTERS = ("ingest", "growth", "roster", "processes")
HEADS = ("FIGURE", "MEDIAN", "SPREAD", "GOAL", "")

EXAMPLES = """
\b
Examples:
  python -m benchmarks.suite
  python -m benchmarks.suite --quick
  python -m benchmarks.suite ingest keys --repetitions 4 --json figures.json

\b
Exit codes:
  0 measured, whatever the figures, and whichever chapter was void; 2 wrong usage; 3 wrk is missing
"""


@dataclass(frozen=True)
class Bench:
    """What a chapter may use of time and place."""

    where: Places
    repetitions: int
    # Of one window.
    seconds: int
    # Smaller fleets and fewer variants: a minute or two.
    quick: bool

    def say(self, words: str) -> None:
        """How far it has come."""
        click.echo(words, err=True)


Measure = Callable[[Bench], Awaitable[Sequence[Figure]]]


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("chapters", nargs=-1, type=click.Choice(CHAPTERS))
@click.option(
    "--quick",
    is_flag=True,
    help="Four chapters, small fleets, one short repetition: a minute or two.",
)
@click.option("--repetitions", default=8, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=2, show_default=True, type=click.IntRange(1, 30), help="Of one.")
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="For the stores.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="All repetitions, here.")
def suite(
    chapters: tuple[str, ...],
    quick: bool,
    repetitions: int,
    seconds: int,
    directory: Path | None,
    report: Path | None,
) -> None:
    """Measure every chapter, or those that are named, and print one table."""
    wrk.require()
    processes.end_on_sigterm()
    found: dict[str, Sequence[Figure]] = {}
    with places(directory) as where:
        bench = Bench(where, 1 if quick else repetitions, 1 if quick else seconds, quick)
        for name in chapters or (QUICK_CHAPTERS if quick else CHAPTERS):
            try:
                found[name] = _measured(name, bench)
            except wrk.Void as error:
                bench.say(f"{name}: {error.message}")
            # After each: half an hour of measuring is not lost to what comes last.
            if report is not None:
                report.write_text(json.dumps(_document(found), indent=2) + "\n")
    _show(found)
    if quick:
        click.echo("One short repetition: whether a goal is met can't be told from it.")


def _measured(name: str, bench: Bench) -> Sequence[Figure]:
    measure: Measure = import_module(f"benchmarks.chapters.{name}").measure
    bench.say(f"{name} …")
    began = time.monotonic()
    figures = asyncio.run(_run(measure, bench))
    bench.say(f"{name}: {time.monotonic() - began:.0f} s")
    return figures


async def _run(measure: Measure, bench: Bench) -> Sequence[Figure]:
    return await measure(bench)


def _show(found: dict[str, Sequence[Figure]]) -> None:
    click.echo(f"{machine()['summary']}; median and spread (least–most) of the repetitions\n")
    for name, figures in found.items():
        click.echo(click.style(name.upper(), bold=True))
        table(HEADS, [figure.row() for figure in figures], empty="Nothing was measured.")
        click.echo()


def _document(found: dict[str, Sequence[Figure]]) -> dict[str, Any]:
    chapters = {name: [figure.as_json() for figure in figures] for name, figures in found.items()}
    return {"machine": machine(), "chapters": chapters}


def machine() -> dict[str, Any]:
    """Where this was measured: absolute figures belong to it alone."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    described = f"{cores} cores, {memory / 2**30:.0f} GiB, Python {platform.python_version()}"
    return {
        "summary": described,
        "cores": cores,
        "memory_bytes": memory,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processor": _processor(),
        "load": os.getloadavg(),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    suite(prog_name="python -m benchmarks.suite")
