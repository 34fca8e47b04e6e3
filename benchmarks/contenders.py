"""Servers that take turns under the same load: ours, one upsert a request, and a no-op."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from benchmarks import load, processes, wrk
from benchmarks.fleet import STRANGERS, Fleet, enlist, muster
from benchmarks.places import Kind, Places, opened
from collector.store.protocol import Store

NO_OP = "no-op"
GROUP = "group commit"
ONE_BY_ONE = "one upsert a request"
PREPARED = "one upsert a request, prepared"
COMMANDS = {
    NO_OP: (sys.executable, "-m", "benchmarks.variants", "no-op"),
    GROUP: processes.SERVE,
    ONE_BY_ONE: (sys.executable, "-m", "benchmarks.variants", "one-by-one"),
    PREPARED: (sys.executable, "-m", "benchmarks.variants", "prepared"),
}

# On SQLite the plain way is the prepared one.
WAYS: dict[Kind, tuple[str, ...]] = {
    "selfhosted": (GROUP, ONE_BY_ONE),
    "cloud": (GROUP, ONE_BY_ONE, PREPARED),
}

# The no-op has no store: it is measured once, as the ceiling of both.
Name = tuple[Kind | None, str]


@dataclass(frozen=True)
class Contender:
    """A running server, the load that is meant for it, and the store under it."""

    name: Name
    target: wrk.Target
    store: Store | None = None

    async def rate(self, seconds: int) -> float:
        if self.store is not None:
            await muster(self.store)
        return await wrk.rate(self.target, seconds)


@asynccontextmanager
async def contenders(
    where: Places, kinds: tuple[Kind, ...], one_in: int
) -> AsyncIterator[list[Contender]]:
    """All of them serving, each on a store of its own, with warm caches."""
    ways = [(kind, way) for kind in kinds for way in WAYS[kind]]
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(_no_op(where, one_in)),
            *[await stack.enter_async_context(_collector(where, *w, one_in)) for w in ways],
        ]


@asynccontextmanager
async def _no_op(where: Places, one_in: int) -> AsyncIterator[Contender]:
    async with _serving(where, (None, NO_OP), where.new("selfhosted")) as process:
        yield Contender((None, NO_OP), _target(where, process, STRANGERS, one_in))


@asynccontextmanager
async def _collector(where: Places, kind: Kind, way: str, one_in: int) -> AsyncIterator[Contender]:
    url = where.new(kind)
    async with opened(url) as store, _serving(where, (kind, way), url) as process:
        fleet = await enlist(store)
        await _warm(process, fleet)
        yield Contender((kind, way), _target(where, process, fleet, one_in), store)


@asynccontextmanager
async def _serving(where: Places, name: Name, url: str) -> AsyncIterator[processes.Process]:
    log = where.directory / f"{name[0]}-{name[1]}.log"
    process = await asyncio.to_thread(processes.start, COMMANDS[name[1]], store_url=url, log=log)
    try:
        yield process
    finally:
        process.stop()


def _target(where: Places, process: processes.Process, fleet: Fleet, one_in: int) -> wrk.Target:
    file = where.directory / f"{process.port}.fleet"
    fleet.write(file)
    return wrk.Target(f"http://{process.host}:{process.port}", file, one_in)


async def _warm(process: processes.Process, fleet: Fleet) -> None:
    """One beat with every key: its argon2 run is not part of a window."""
    reader, writer = await asyncio.open_connection(process.host, process.port)
    for key in fleet.keys:
        status = await load.beat(reader, writer, key, "warm-up")
        if status != 202:
            raise wrk.Void(f"a beat was answered {status}")
    writer.close()
