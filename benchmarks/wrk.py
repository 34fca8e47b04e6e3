"""One window of load from wrk."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

import click

CONNECTIONS = 64
# One thread is ample, and leaves the cores to what is measured.
THREADS = 1
SCRIPT = Path(__file__).with_name("beats.lua")
MISSING = """wrk is missing, which makes the load. Install it with one of:
  apt-get install wrk
  brew install wrk"""


class WrkMissing(click.ClickException):
    exit_code = 3


class Void(click.ClickException):
    """Some beats failed: what was counted is not the rate of anything."""


@dataclass(frozen=True)
class Target:
    """A server and the fleet that it knows; `one_in` beats of a worker changes something."""

    address: str
    fleet: Path
    one_in: int


@dataclass(frozen=True)
class Window:
    """What was accepted, and what it cost wrk itself."""

    beats: int
    seconds: float
    wrk_cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.beats / self.seconds

    def __str__(self) -> str:
        return f"{self.rate:.0f} beats a second"


def require() -> None:
    if shutil.which("wrk") is None:
        raise WrkMissing(MISSING)


async def rate(target: Target, seconds: int) -> float:
    """Beats a second over one window, every one of them accepted."""
    return (await window(target, seconds)).rate


async def window(target: Target, seconds: int, connections: int = CONNECTIONS) -> Window:
    """Every beat of it was accepted."""
    before = _waited_for()
    process = await asyncio.create_subprocess_exec(
        *f"wrk --threads {THREADS} --connections {connections} --timeout 30s".split(),
        *("--duration", f"{seconds}s", "--script", str(SCRIPT), target.address),
        *("--", str(target.fleet), str(target.one_in)),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    counted = json.loads(said.splitlines()[-1])
    if counted["failed"] or not counted["requests"]:
        raise Void(f"void, not every beat was accepted:\n{said.decode()}")
    used = _waited_for() - before
    return Window(counted["requests"], counted["microseconds"] / 1_000_000, used)


def _waited_for() -> float:
    """Processor time of the children that have ended: in a window that is wrk alone."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
