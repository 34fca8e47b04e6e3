"""What a worker's presence costs its host, beside the same with the open-source peer's producer."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from benchmarks import processes
from benchmarks.wrk import Void
from collector.cli.tables import table
from conformance import wheel
from conformance.launcher import ROOT
from conformance.target import Unreachable
from contract.vocabulary import BEAT_SECONDS

DEADLINE_SECONDS = 60
# No repetition begins after this: the whole takes less than five minutes on a busy machine too.
LAST_BEGINS_SECONDS = 240
IMPORTS = {
    "ours": "from contract import register_worker",
    "peer": "from voicegateway import register_worker",
}

Name = Literal["none", "ours", "peer"]

EXAMPLES = """
\b
Examples:
  python -m benchmarks.producer
  python -m benchmarks.producer --repetitions 3 --seconds 1 --ours-only
  python -m benchmarks.producer --json producer.json

\b
Exit codes:
  0 measured, whatever it is, 1 void, 2 wrong usage, 3 the peer can't be installed
"""


@dataclass(frozen=True)
class Figure:
    """One line of the table: what every repetition found."""

    name: str
    digits: int
    nobodys: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    peers: list[float] = field(default_factory=list)

    def of(self, name: Name) -> list[float]:
        return {"none": self.nobodys, "ours": self.ours, "peer": self.peers}[name]

    @property
    def ratios(self) -> list[float]:
        """Of neighbours in time: noise hits both alike."""
        return [ours / peers for ours, peers in zip(self.ours, self.peers, strict=False) if peers]

    def row(self) -> tuple[str, ...]:
        ratios = self.ratios
        return (
            self.name,
            self._median(self.nobodys),
            self._median(self.ours),
            self._median(self.peers),
            f"{statistics.median(ratios):.3f}" if ratios else "",
            f"{min(ratios):.3f}–{max(ratios):.3f}" if ratios else "",
        )

    def _median(self, found: Sequence[float]) -> str:
        if not found:
            return ""
        middle, least, most = statistics.median(found), min(found), max(found)
        return f"{middle:.{self.digits}f} ({least:.{self.digits}f}–{most:.{self.digits}f})"


# What a part of the measurement calls it, and what the table does.
Found = Mapping[str, float]
FIGURES = {
    "import_ms": ("import, ms above a bare interpreter", 0),
    "import_cpu_ms": ("the same, processor time", 0),
    "resident_mb": ("memory after ten beats, MB above a bare interpreter", 1),
    "beat_us": ("processor time of a beat, µs", 0),
    "core_percent": (f"the same every {BEAT_SECONDS} s, % of a core", 4),
    "turns": ("turns a second of a busy loop, with of without", 3),
    "cpu_turns": ("turns a second of processor time, with of without", 3),
    "p999_with_ms": ("99.9th percentile of a turn, ms with", 2),
    "p999_without_ms": ("the same without", 2),
    "starting_ms": ("longest turn of the second after registering, ms", 1),
}


@dataclass(frozen=True)
class Effort:
    """How much is measured at a time."""

    beats: int
    seconds: int


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repetitions", default=8, show_default=True, type=click.IntRange(1))
@click.option("--beats", default=1000, show_default=True, type=click.IntRange(1))
@click.option(
    "--seconds",
    default=2,
    show_default=True,
    type=click.IntRange(1, 30),
    help="A window of the busy loop, in which a beat is sent every second.",
)
@click.option("--ours-only", is_flag=True, help="Without the peer, and so without the network.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the figures here.")
def producer(
    repetitions: int, beats: int, seconds: int, ours_only: bool, report: Path | None
) -> None:
    """Measure import, memory, processor time and what a busy loop loses.

    Every figure comes from new processes, by turns ours and the peer's, both run by the Python of
    the environment that has the peer. Beats go to a server in a process of its own that accepts
    each of them at once. Installs the peer if it is not there yet.
    """
    processes.end_on_sigterm()
    try:
        python = Path(sys.executable) if ours_only else wheel.producer()
    except Unreachable as error:
        click.secho(f"producer: {error}", fg="red", err=True)
        sys.exit(3)
    names: list[Name] = ["none", "ours"] if ours_only else ["none", "ours", "peer"]
    figures = measure(python, names, repetitions, Effort(beats, seconds))
    _show(figures)
    if report is not None:
        rows = [asdict(each) | {"ratios": each.ratios} for each in figures]
        report.write_text(json.dumps(rows, indent=2) + "\n")


def measure(
    python: Path, names: Sequence[Name], repetitions: int, effort: Effort
) -> Sequence[Figure]:
    """All figures; the peer's stay empty if it is not among the names."""
    figures = {key: Figure(name, digits) for key, (name, digits) in FIGURES.items()}
    last_begins_at = time.monotonic() + LAST_BEGINS_SECONDS
    with tempfile.TemporaryDirectory(prefix="bench-producer-") as home, accepting() as acceptor:
        bench = Bench(python, Path(home), acceptor)
        bench.warm_up(names)
        for n in range(repetitions):
            if time.monotonic() > last_begins_at:
                break
            # Who goes first changes every time.
            for name in names if n % 2 else reversed(names):
                found = bench.repetition(name, effort)
                for key, value in found.items():
                    figures[key].of(name).append(value)
                _tell(n, name, found)
    return list(figures.values())


class Acceptor:
    """The server's process."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        self.url = f"http://127.0.0.1:{self._said()}"

    def accepted(self) -> int:
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return self._said()

    def _said(self) -> int:
        assert self._child.stdout is not None
        return int(self._child.stdout.readline())


@contextmanager
def accepting() -> Iterator[Acceptor]:
    """It accepts beats; it ends with its input, and so does not outlive us."""
    command = (sys.executable, "-m", "benchmarks.acceptor")
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield Acceptor(child)


class Bench:
    """Starts hosts, one at a time, and takes down what they cost."""

    def __init__(self, python: Path, home: Path, acceptor: Acceptor) -> None:
        self._python = python
        self._acceptor = acceptor
        # Nothing of the caller's environment gets in: a proxy would.
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "VOICEGW_COLLECTOR_URL": acceptor.url,
            "VOICEGW_API_KEY": "vk_benchmark",
            "VOICEGW_AGENT_ID": "benchmark",
        }

    def warm_up(self, names: Sequence[Name]) -> None:
        """What Python compiles once is not measured."""
        for name in names:
            self._import(name)
            self._beats(name, 0)

    def repetition(self, name: Name, effort: Effort) -> Found:
        turning = self._turning(name, effort.seconds)
        if name == "none":
            return turning
        return {**self._importing(name), **self._beating(name, effort.beats), **turning}

    def _importing(self, name: Name) -> Found:
        bare_wall, bare_cpu = self._import("none")
        wall, cpu = self._import(name)
        return {"import_ms": (wall - bare_wall) * 1e3, "import_cpu_ms": (cpu - bare_cpu) * 1e3}

    def _beating(self, name: Name, count: int) -> Found:
        bare, found = self._beats("none", 0), self._beats(name, count)
        beat_seconds = found["cpu_seconds"] / count
        return {
            "resident_mb": (found["resident_bytes"] - bare["resident_bytes"]) / 1e6,
            "beat_us": beat_seconds * 1e6,
            "core_percent": beat_seconds / BEAT_SECONDS * 100,
        }

    def _turning(self, name: Name, seconds: int) -> Found:
        """Without a producer, what this says is the machine's noise."""
        found = self._host(name, "turns", str(seconds))
        with_it, without, starting = found["with"], found["without"], found["starting"]
        return {
            "turns": _rate(with_it, "seconds") / _rate(without, "seconds"),
            "cpu_turns": _rate(with_it, "cpu_seconds") / _rate(without, "cpu_seconds"),
            "p999_with_ms": with_it["p999_seconds"] * 1e3,
            "p999_without_ms": without["p999_seconds"] * 1e3,
            "starting_ms": starting["longest_seconds"] * 1e3,
        }

    def _beats(self, name: Name, count: int) -> Found:
        before = self._acceptor.accepted()
        found: Found = self._host(name, "beats", str(count))
        # Neither producer tells us of a beat that failed: the server knows.
        if (accepted := self._acceptor.accepted() - before) < count:
            raise Void(f"void, of {count} beats of {name} only {accepted} were accepted")
        return found

    def _import(self, name: Name) -> tuple[float, float]:
        """Wall and processor time of an interpreter that imports it and ends."""
        began, used = time.perf_counter(), _childrens_cpu()
        self._run("-c", IMPORTS.get(name, "pass"))
        return time.perf_counter() - began, _childrens_cpu() - used

    def _host(self, name: Name, *order: str) -> Any:
        return json.loads(self._run("-m", "benchmarks.host", name, *order))

    def _run(self, *order: str) -> str:
        done = subprocess.run(
            [self._python, *order],
            env=self._environment | {"PYTHONPATH": str(ROOT)},
            cwd=self._environment["HOME"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        if done.returncode:
            raise Void(f"void, a host ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout


def _rate(turns: Found, unit: str) -> float:
    return turns["turns"] / turns[unit]


def _childrens_cpu() -> float:
    """Of those that have ended: the server has not."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tell(repetition: int, name: Name, found: Found) -> None:
    said = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
    click.echo(f"repetition {repetition + 1}, {name}: {said}", err=True)


def _show(figures: Sequence[Figure]) -> None:
    click.echo(
        f"the peer is {wheel.NAME} {wheel.VERSION}; median (least–most) of {len(figures[0].ours)} "
        "repetitions, and of their ratios\n"
    )
    heads = ("FIGURE", "NOBODY'S", "OURS", "THE PEER'S", "OURS OF THE PEER'S", "SPREAD")
    table(heads, [each.row() for each in figures], empty="Nothing was measured.")


if __name__ == "__main__":
    producer()
