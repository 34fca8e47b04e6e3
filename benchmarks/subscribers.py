"""What a thousand subscribers cost: heartbeats a second with them, as a share of without."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import httpx2
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import processes, wrk
from benchmarks.fleet import TENANTS, WORKERS, enlist, muster
from benchmarks.ingest import Rates, Ratio
from benchmarks.listeners import Counts
from benchmarks.places import KINDS, Kind, Places, opened, places
from collector import keys
from collector.cli.tables import table
from collector.clock import SystemClock
from collector.store.protocol import Store

GOAL = 0.8
# One beat in so many changes something, about 5%. It has no factor in common with the number of
# tenants: then all of them have workers that change.
ONE_IN = 19
WARM_UP_SECONDS = 3
OPENING_SECONDS = 60
NONE, ALL = "no subscribers", "subscribers"

EXAMPLES = """
\b
Examples:
  python -m benchmarks.subscribers
  python -m benchmarks.subscribers --store cloud --subscribers 200 --tenants 50
  python -m benchmarks.subscribers --json subscribers.json

\b
Exit codes:
  0 goal met, 1 not met or void, 2 wrong usage, 3 wrk is missing
"""


@dataclass(frozen=True)
class Load:
    """Who subscribes, and how often there is something to tell them."""

    subscribers: int
    tenants: int
    one_in: int


@dataclass(frozen=True)
class Window:
    """One stretch of load."""

    beats_a_second: float
    cpu_a_beat: float
    lines_a_second: float = 0
    bytes_a_second: float = 0
    snapshots: int = 0
    listeners_cpu: float = 0


@dataclass(frozen=True)
class Figure:
    """One store."""

    store: Kind
    load: Load
    ratio: Ratio
    without: Sequence[Window]
    with_them: Sequence[Window]

    @property
    def met(self) -> bool:
        return self.ratio.median >= GOAL

    def row(self) -> dict[str, str]:
        """One line of the table; every figure is a median."""
        return {
            "store": self.store,
            "with, of without": str(self.ratio),
            f"goal {GOAL}": "met" if self.met else "not met",
            "beats/s without": f"{_median(self.without, 'beats_a_second'):.0f}",
            "with": f"{_median(self.with_them, 'beats_a_second'):.0f}",
            "deliveries/s": f"{_median(self.with_them, 'lines_a_second'):.0f}",
            "MB/s": f"{_median(self.with_them, 'bytes_a_second') / 1e6:.1f}",
            "snapshots": f"{_median(self.with_them, 'snapshots'):.0f}",
            "CPU us a beat without": f"{_median(self.without, 'cpu_a_beat') * 1e6:.0f}",
            "with ": f"{_median(self.with_them, 'cpu_a_beat') * 1e6:.0f}",
            "CPU of the subscribers": f"{_median(self.with_them, 'listeners_cpu'):.0%}",
        }


def _median(windows: Sequence[Window], name: str) -> float:
    return float(statistics.median(getattr(each, name) for each in windows))


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repetitions", default=8, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=5, show_default=True, type=click.IntRange(1, 30))
@click.option("--subscribers", "count", default=1000, show_default=True, type=click.IntRange(1))
@click.option(
    "--tenants",
    default=10,
    show_default=True,
    type=click.IntRange(1, TENANTS),
    help=f"How many of the {TENANTS} tenants have them.",
)
@click.option(
    "--one-in",
    default=ONE_IN,
    show_default=True,
    type=click.IntRange(0),
    help="One beat in so many changes something; 0 is none.",
)
@click.option(
    "--store", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, help="Only this."
)
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="For the stores.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the figures here.")
def subscribers(
    repetitions: int,
    seconds: int,
    count: int,
    tenants: int,
    one_in: int,
    kinds: tuple[Kind, ...],
    directory: Path | None,
    report: Path | None,
) -> None:
    """Measure beats on one collector, in turns with and without subscribers.

    About 5% of the beats change something. The load and the subscribers share the cores with the
    collector, so part of what the subscribers cost is their own reading; it is shown beside.
    """
    wrk.require()
    processes.end_on_sigterm()
    load = Load(count, tenants, one_in)
    with places(directory) as where:
        figures = [asyncio.run(_measure(where, load, kind, repetitions, seconds)) for kind in kinds]
    _show(figures)
    if report is not None:
        rows = [asdict(each) | {"goal": GOAL, "met": each.met} for each in figures]
        report.write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(0 if all(each.met for each in figures) else 1)


async def _measure(where: Places, load: Load, kind: Kind, repetitions: int, seconds: int) -> Figure:
    async with bench(where, load, kind) as running:
        await running.without(WARM_UP_SECONDS)
        pairs = [await _take_turns(running, n, seconds) for n in range(repetitions)]
    rates: list[Rates] = [
        {(kind, NONE): without.beats_a_second, (kind, ALL): with_them.beats_a_second}
        for without, with_them in pairs
    ]
    without, with_them = zip(*pairs, strict=True)
    ratio = Ratio.of(rates, (kind, ALL), (kind, NONE))
    return Figure(kind, load, ratio, without, with_them)


async def _take_turns(running: Bench, repetition: int, seconds: int) -> tuple[Window, Window]:
    """Who goes first changes every time."""
    if repetition % 2:
        with_them = await running.with_them(seconds)
        without = await running.without(seconds)
    else:
        without = await running.without(seconds)
        with_them = await running.with_them(seconds)
    click.echo(
        f"{running.kind}, repetition {repetition + 1}: {without.beats_a_second:.0f}/s without, "
        f"{with_them.beats_a_second:.0f}/s with, {with_them.lines_a_second:.0f} deliveries/s",
        err=True,
    )
    return without, with_them


class Bench:
    """A running collector, the load for it, and those who may subscribe."""

    def __init__(
        self, kind: Kind, store: Store, process: processes.Process, target: wrk.Target
    ) -> None:
        self.kind = kind
        self._store = store
        self._process = process
        self._target = target
        self._readers: list[tuple[str, str]] = []
        self._file = target.fleet.with_suffix(".streams")

    async def admit(self, load: Load) -> None:
        """From now on that many will subscribe: tenant and key of each."""
        now = SystemClock().now()
        names = sorted({key.tenant_id for key in await self._store.keys(None)})[: load.tenants]
        minted = [
            (name, (await keys.create(self._store, name, ["read"], now=now))[1]) for name in names
        ]
        self._readers = [minted[n % len(minted)] for n in range(load.subscribers)]

    async def without(self, seconds: int) -> Window:
        await self._until_subscribed_by(0)
        await muster(self._store)
        return await self._window(seconds)

    async def with_them(self, seconds: int) -> Window:
        await muster(self._store)
        await self._write_streams()
        async with listeners(self._process, self._file) as listening:
            await self._until_subscribed_by(len(self._readers))
            before = await listening.counts()
            window = await self._window(seconds)
            after = await listening.counts()
        if after.refused or after.ended:
            raise wrk.Void(f"void, streams were refused or ended: {after}")
        return Window(
            window.beats_a_second,
            window.cpu_a_beat,
            lines_a_second=(after.lines - before.lines) / seconds,
            bytes_a_second=(after.size - before.size) / seconds,
            snapshots=after.snapshots - before.snapshots,
            listeners_cpu=(after.cpu_seconds - before.cpu_seconds) / seconds,
        )

    async def _window(self, seconds: int) -> Window:
        before = await self._metric("process_cpu_seconds_total")
        rate = await wrk.rate(self._target, seconds)
        cpu = await self._metric("process_cpu_seconds_total") - before
        return Window(rate, cpu / (rate * seconds))

    async def _write_streams(self) -> None:
        """Everybody resumes from the newest line: snapshots at the start are another matter."""
        positions = {name: await self._store.position(name) for name, _ in set(self._readers)}
        cursors = {name: f"{place.epoch}.{place.head}" for name, place in positions.items()}
        self._file.write_text("".join(f"{key} {cursors[name]}\n" for name, key in self._readers))

    async def _until_subscribed_by(self, count: int) -> None:
        async with asyncio.timeout(OPENING_SECONDS):
            while await self._metric("collector_subscribers") != count:
                await asyncio.sleep(0.1)

    async def _metric(self, name: str) -> float:
        url = f"{self._target.address}/metrics"
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            text = (await http.get(url)).text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return next(sample.value for sample in samples if sample.name == name)


@asynccontextmanager
async def bench(where: Places, load: Load, kind: Kind) -> AsyncIterator[Bench]:
    """One collector for both kinds of window, on a store of its own."""
    url, log = where.new(kind), where.directory / f"{kind}.log"
    async with opened(url) as store:
        process = await asyncio.to_thread(processes.start, processes.SERVE, store_url=url, log=log)
        try:
            fleet = await enlist(store)
            file = where.directory / f"{process.port}.fleet"
            fleet.write(file)
            address = f"http://{process.host}:{process.port}"
            running = Bench(kind, store, process, wrk.Target(address, file, load.one_in))
            await running.admit(load)
            yield running
        finally:
            await asyncio.to_thread(process.stop)


class Listeners:
    """The process with all the streams."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def counts(self) -> Counts:
        assert self._child.stdin is not None
        self._child.stdin.write(b"\n")
        return await self.said()

    async def said(self) -> Counts:
        assert self._child.stdout is not None
        async with asyncio.timeout(OPENING_SECONDS):
            said = await self._child.stdout.readline()
        if not said:
            raise wrk.Void("void, the subscribers' process ended")
        return Counts(**json.loads(said))


@asynccontextmanager
async def listeners(process: processes.Process, streams: Path) -> AsyncIterator[Listeners]:
    """All of them open; they are gone when the block ends."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.listeners"),
        *(process.host, str(process.port), str(streams)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        listening = Listeners(child)
        await listening.said()
        yield listening
    finally:
        # It ends with its input, and so does not outlive us either.
        assert child.stdin is not None
        child.stdin.close()
        await child.wait()


def _show(figures: list[Figure]) -> None:
    load = figures[0].load
    changes = f"one beat in {load.one_in} changes" if load.one_in else "no beat changes"
    click.echo(
        f"{WORKERS} workers of {TENANTS} tenants over {wrk.CONNECTIONS} connections, "
        f"{changes} something; {load.subscribers} subscribers of {load.tenants} tenants; "
        "median (least–most) of the repetitions' ratios\n"
    )
    rows = [each.row() for each in figures]
    heads = [name.upper() for name in rows[0]]
    table(heads, [list(row.values()) for row in rows], empty="Nothing was measured.")


if __name__ == "__main__":
    subscribers()
