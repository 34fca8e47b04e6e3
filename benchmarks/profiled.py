"""Where the time of a heartbeat goes: `python -m benchmarks.profiled cloud`, or `selfhosted`.

Samples of a collector under the load of the chapter on ingest, by py-spy, which has to be on PATH
or in the same environment (`.venv/bin/pip install py-spy`). Prints what docs/profiles/ keeps.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks import contenders, processes, usage, wrk
from benchmarks.contenders import Contender, Window
from benchmarks.places import KINDS, STORES, Kind, Places, places

A_SECOND = 400
SECONDS = 5
# The load outlasts the sampling.
LOAD_SECONDS = SECONDS + 3
ROWS = 30

# Innermost frame last, and how often it was seen.
Stack = tuple[list[str], int]


class PySpyMissing(click.ClickException):
    exit_code = 3


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--writer", is_flag=True, help="Of the process that writes beats to SQLite.")
def profiled(kind: Kind, writer: bool) -> None:
    """Sample a collector that takes heartbeats, and print where it was."""
    wrk.require()
    if _py_spy() is None:
        raise PySpyMissing("py-spy is missing; install it with: .venv/bin/pip install py-spy")
    processes.end_on_sigterm()
    with places(None) as where:
        window, stacks = asyncio.run(_sample(where, kind, writer))
    count = sum(seen for _, seen in stacks)
    click.echo(f"py-spy, {A_SECOND} samples a second for {SECONDS} s, threads that wait left out:")
    click.echo(f"{count} samples of {STORES[kind]}{', the process that writes' if writer else ''}.")
    click.echo("10,000 workers over 64 connections; processor time a beat, of all processes:")
    click.echo(f"{window.a_beat('cpu') * 1e6:.0f} µs.")
    own, everywhere = Counter[str](), Counter[str]()
    for frames, seen in stacks:
        own[frames[-1]] += seen
        everywhere.update(dict.fromkeys(frames, seen))
    _show("own time", own, count)
    _show("with what it calls", everywhere, count)


def _py_spy() -> str | None:
    return shutil.which("py-spy") or shutil.which("py-spy", path=Path(sys.executable).parent)


async def _sample(where: Places, kind: Kind, writer: bool) -> tuple[Window, list[Stack]]:
    async with contenders.collector(where, kind) as running:
        await running.window(2)
        with tempfile.NamedTemporaryFile(dir=where.directory) as file:
            sampling = asyncio.create_task(_record(running, writer, Path(file.name)))
            window = await running.window(LOAD_SECONDS)
            await sampling
            return window, list(_stacks(Path(file.name)))


async def _record(running: Contender, writer: bool, file: Path) -> None:
    pid = usage.family(running.pid)[1 if writer else 0]
    spy = await asyncio.create_subprocess_exec(
        str(_py_spy()),
        *f"record --rate {A_SECOND} --duration {SECONDS} --format raw".split(),
        *("--output", str(file), "--pid", str(pid)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await spy.communicate()
    if spy.returncode:
        raise click.ClickException(said.decode())


def _stacks(file: Path) -> Iterator[Stack]:
    for line in file.read_text().splitlines():
        frames, _, seen = line.rpartition(" ")
        # A thread of a pool that waits for work counts as active to py-spy.
        if "_worker (concurrent/futures/thread.py" not in frames.rpartition(";")[2]:
            yield frames.split(";"), int(seen)


def _show(title: str, found: Counter[str], count: int) -> None:
    click.echo(f"\n{title}")
    for frame, seen in found.most_common(ROWS):
        click.echo(f"{seen / count:6.1%}  {frame}")


if __name__ == "__main__":
    profiled(prog_name="python -m benchmarks.profiled")
