"""Servers that take turns under the same load: ours, one upsert a request, and no-ops."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import load, processes, usage, wrk
from benchmarks.crowd import admit, fill
from benchmarks.fleet import STRANGERS, Fleet, muster
from benchmarks.places import Kind, Places, opened
from collector.store.protocol import Store

VARIANT = (sys.executable, "-m", "benchmarks.variants")
NO_OP = (*VARIANT, "no-op")
NO_OP_ENDPOINT = (*VARIANT, "no-op-endpoint")
NO_OP_RAW = (*VARIANT, "no-op-raw")
ONE_BY_ONE = (*VARIANT, "one-by-one")
PREPARED = (*VARIANT, "prepared")
WARMING_AT_ONCE = 16

# Something that only grows; a window tells by how much it did.
Meter = Callable[[], float]


@dataclass(frozen=True)
class Window(wrk.Window):
    """And by how much each meter grew."""

    used: Mapping[str, float]

    def a_beat(self, meter: str) -> float:
        return self.used[meter] / self.beats

    def a_second(self, meter: str) -> float:
        return self.used[meter] / self.seconds


@dataclass(frozen=True)
class Contender:
    """A running server, the fleet that beats on it, and the store under it if it has one."""

    process: processes.Process
    fleet: Fleet
    file: Path
    store: Store | None = None
    meters: dict[str, Meter] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.popen.pid

    async def window(
        self, seconds: int, *, one_in: int = 0, connections: int = wrk.CONNECTIONS
    ) -> Window:
        if self.store is not None:
            await muster(self.store, self.fleet)
        address = f"http://{self.process.host}:{self.process.port}"
        before = {name: read() for name, read in self.meters.items()}
        found = await wrk.window(wrk.Target(address, self.file, one_in), seconds, connections)
        used = {name: read() - before[name] for name, read in self.meters.items()}
        return Window(found.beats, found.seconds, found.wrk_cpu_seconds, used)


@asynccontextmanager
async def no_op(where: Places, command: tuple[str, ...]) -> AsyncIterator[Contender]:
    """One that asks for no key and stores nothing."""
    async with _serving(where, command, where.new("selfhosted")) as process:
        meters = _own_cpu(process.popen.pid)
        yield Contender(process, STRANGERS, _file(where, process, STRANGERS), None, meters)


@asynccontextmanager
async def collector(
    where: Places,
    kind: Kind,
    command: tuple[str, ...] = processes.SERVE,
    fleet: Fleet = STRANGERS,
    settings: Mapping[str, str] = processes.UNCHANGED,
) -> AsyncIterator[Contender]:
    """One on a store of its own, which has the whole fleet in it and knows its keys."""
    url = where.new(kind)
    async with opened(url) as store:
        if fleet.beating < fleet.workers:
            await fill(store, fleet)
            where.settle(url)
        fleet = await admit(store, fleet)
        async with _serving(where, command, url, settings) as process:
            await _warm(process, fleet)
            meters = _meters(where, kind, process.popen.pid)
            yield Contender(process, fleet, _file(where, process, fleet), store, meters)


def _own_cpu(pid: int) -> dict[str, Meter]:
    """Of the process that answers, whatever a neighbour of this machine takes meanwhile."""
    return {"own cpu": lambda: usage.cpu_seconds(pid)}


def _meters(where: Places, kind: Kind, pid: int) -> dict[str, Meter]:
    cpu = _own_cpu(pid) | {"cpu": lambda: usage.of_family(usage.cpu_seconds, pid)}
    if kind == "selfhosted":
        return cpu | {"written": lambda: usage.of_family(usage.written_bytes, pid)}
    server = where.postgres
    return cpu | {
        "store cpu": lambda: usage.of_family(usage.cpu_seconds, server.pid or 0),
        "written": lambda: float(server.execute("SELECT pg_current_wal_insert_lsn() - '0/0'")),
    }


@asynccontextmanager
async def _serving(
    where: Places,
    command: tuple[str, ...],
    url: str,
    settings: Mapping[str, str] = processes.UNCHANGED,
) -> AsyncIterator[processes.Process]:
    log = where.directory / "servers.log"
    process = await asyncio.to_thread(
        processes.start, command, store_url=url, log=log, settings=settings
    )
    try:
        yield process
    finally:
        await asyncio.to_thread(process.stop)


def _file(where: Places, process: processes.Process, fleet: Fleet) -> Path:
    file = where.directory / f"{process.port}.fleet"
    fleet.write(file)
    return file


async def _warm(process: processes.Process, fleet: Fleet) -> None:
    """One beat with every key: its argon2 run is not part of a window."""
    await beat_once_each(process, fleet, range(len(fleet.keys)))


async def beat_once_each(process: processes.Process, fleet: Fleet, workers: Iterable[int]) -> None:
    """One beat of each of these workers."""
    numbers = iter(workers)
    async with asyncio.TaskGroup() as group:
        for _ in range(WARMING_AT_ONCE):
            group.create_task(_beat_with_each(process, fleet, numbers))


async def _beat_with_each(process: processes.Process, fleet: Fleet, numbers: Iterable[int]) -> None:
    reader, writer = await asyncio.open_connection(process.host, process.port)
    for n in numbers:
        status = await load.ask(reader, writer, fleet.request(n))
        if status != 202:
            raise wrk.Void(f"a beat was answered {status}")
    writer.close()
