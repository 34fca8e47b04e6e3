"""What grows and what must not: beats a second and memory as a fleet gets larger.

Everybody beats in another order than the store's own. Of a fleet past 10,000 workers, 10,000 of all
its parts beat; the others were lost before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from benchmarks import contenders, load, usage
from benchmarks.contenders import Contender, Window
from benchmarks.figures import Figure, Goal, at_least, at_most, ratios
from benchmarks.fleet import SCATTERED, TENANTS, WORKERS, Fleet, strangers
from benchmarks.places import STORES, Kind
from benchmarks.suite import Bench
from benchmarks.turns import Turn, take_turns

FEW, MANY, MOST = 100, 100_000, 1_000_000
ONE_TENANT, MANY_TENANTS = "1 tenant", f"{WORKERS:,} tenants"
# One beat in so many changes something. 19 has no factor in common with the number of tenants: so
# all of them have workers that change.
CHANGES = {"5%": 19, "50%": 2}
READING = "a roster being read"
# Long enough for a scan of the sweep.
MEMORY_SECONDS = 11


async def measure(bench: Bench) -> Sequence[Figure]:
    # One store after the other: collectors that only wait cost a little too.
    return [figure for kind in STORES for figure in await _of_store(bench, kind)]


async def _of_store(bench: Bench, kind: Kind) -> list[Figure]:
    async with AsyncExitStack() as stack:
        running: dict[str, Contender] = {}
        for name, fleet in _fleets(bench.quick).items():
            bench.say(f"{STORES[kind]}: {name}")
            ours = contenders.collector(bench.where, kind, fleet=fleet)
            running[name] = await stack.enter_async_context(ours)
            if not bench.quick:
                await running[name].window(bench.seconds)
        windows = await take_turns(bench, _turns(bench, running))
        figures = _ratios(STORES[kind], windows)
        return figures + ([] if bench.quick else await _memory(STORES[kind], running))


def _fleets(quick: bool) -> dict[str, Fleet]:
    sizes = (FEW, WORKERS) if quick else (FEW, WORKERS, MANY, MOST)
    fleets = {_workers(size): _fleet(TENANTS, size) for size in sizes}
    if quick:
        return fleets
    return fleets | {ONE_TENANT: _fleet(1), MANY_TENANTS: _fleet(WORKERS)}


def _fleet(tenants: int, workers: int = WORKERS) -> Fleet:
    return strangers(tenants, workers, beating=min(workers, WORKERS), stride=SCATTERED)


def _workers(size: int) -> str:
    return f"{size:,} workers"


def _turns(bench: Bench, running: Mapping[str, Contender]) -> dict[str, Turn[Window]]:
    turns: dict[str, Turn[Window]] = {
        name: partial(each.window, bench.seconds) for name, each in running.items()
    }
    if bench.quick:
        return turns
    usual, one_tenant = running[_workers(WORKERS)], running[ONE_TENANT]
    for share, one_in in CHANGES.items():
        turns[share] = partial(usual.window, bench.seconds, one_in=one_in)
    return turns | {READING: partial(_read_meanwhile, one_tenant, bench.seconds)}


async def _read_meanwhile(contender: Contender, seconds: int) -> Window:
    async with _reader(contender) as count:
        return await replace(
            contender, meters={**contender.meters, "rosters": lambda: count()}
        ).window(seconds)


@asynccontextmanager
async def _reader(contender: Contender) -> AsyncIterator[Callable[[], int]]:
    """The tenant's whole roster, again and again; how often so far."""
    rosters = 0
    reader, writer = await asyncio.open_connection(contender.process.host, contender.process.port)
    head = f"Host: collector\r\nAuthorization: Bearer {contender.fleet.keys[0]}"

    async def read() -> None:
        nonlocal rosters
        while True:
            status = await load.ask(
                reader, writer, f"GET /v1/agents HTTP/1.1\r\n{head}\r\n\r\n".encode()
            )
            assert status == 200, status
            rosters += 1

    reading = asyncio.create_task(read())
    try:
        yield lambda: rosters
    finally:
        reading.cancel()
        writer.close()


def _ratios(store: str, windows: Mapping[str, Sequence[Window]]) -> list[Figure]:
    rates = {name: [each.rate for each in found] for name, found in windows.items()}

    def of(above: str, below: str, name: str, goal: Goal | None = None) -> list[Figure]:
        if above not in rates:
            return []
        return [Figure(f"{store}: {name}", ratios(rates[above], rates[below]), goal)]

    few, usual = _workers(FEW), _workers(WORKERS)
    figures = [Figure(f"{store}: beats a second with {few}", rates[few])]
    for size in (WORKERS, MANY, MOST):
        goal = at_least(0.9) if size == MOST else None
        figures += of(_workers(size), few, f"with {_workers(size)}, of with {few}", goal)
    for tenants in (ONE_TENANT, MANY_TENANTS):
        figures += of(tenants, usual, f"with {tenants}, of with {TENANTS}")
    for share in CHANGES:
        figures += of(share, usual, f"{share} of the beats change something, of none")
    figures += of(READING, ONE_TENANT, f"with {READING} of {usual}, of without")
    if READING in windows:
        read = [each.a_second("rosters") for each in windows[READING]]
        figures += [Figure(f"{store}: such rosters a second", read)]
    return figures


async def _memory(store: str, running: Mapping[str, Contender]) -> list[Figure]:
    """Of the process, with everybody alive and beating."""
    few, many = [await _resident(running[_workers(size)]) for size in (FEW, MANY)]
    of = f"with {MANY:,} live workers"
    return [
        Figure(f"{store}: memory {of}, of with {FEW}", [many / few], at_most(1.2)),
        Figure(f"{store}: memory {of}", [many / 1e6], unit="MB"),
    ]


async def _resident(contender: Contender) -> int:
    fleet = replace(contender.fleet, beating=contender.fleet.workers)
    fleet.write(contender.file)
    await replace(contender, fleet=fleet).window(MEMORY_SECONDS)
    return usage.of_family(usage.resident_bytes, contender.pid)
