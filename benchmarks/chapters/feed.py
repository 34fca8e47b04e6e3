"""What a thousand subscribers cost those who beat, and what a delivery costs the collector.

Two loads: beats of which about 5% change something, with the subscribers spread over ten tenants;
and a steady number of changes of one tenant that all subscribers follow, so that each change is a
thousand deliveries. The subscribers share the cores with the collector.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial

from benchmarks import population, wrk
from benchmarks.changes import changing
from benchmarks.figures import Figure, at_least, at_most, ratios
from benchmarks.fleet import enlist, muster
from benchmarks.places import KINDS, Kind
from benchmarks.processes import Process
from benchmarks.stage import Stage, serving, stage
from benchmarks.streams import Deliveries, Subscriber, streams, subscribed
from benchmarks.suite import Bench

SUBSCRIBERS, QUICK_SUBSCRIBERS = 1000, 100
# One beat in so many changes something, about 5%. It has no factor in common with the number of
# tenants: then all of them have workers that change.
ONE_IN = 19
TENANTS = 10
GOAL = 0.8
# A second; with a thousand subscribers, 10,000 and 40,000 deliveries.
CHANGES = (10, 40)
AUDIENCE = "audience"
# One takes half a minute.
REPETITIONS = 3
SECONDS = 3
SETTLING_SECONDS = 0.5


@dataclass(frozen=True)
class Beats:
    """Beats a second without and with subscribers, and what these were told meanwhile."""

    without: float
    with_them: float
    deliveries: Deliveries


@dataclass(frozen=True)
class Audience:
    """All who follow one tenant, whose workers have this key too."""

    key: str
    count: int

    @property
    def subscribers(self) -> list[Subscriber]:
        return [(AUDIENCE, self.key)] * self.count


async def measure(bench: Bench) -> Sequence[Figure]:
    count = QUICK_SUBSCRIBERS if bench.quick else SUBSCRIBERS
    figures: list[Figure] = []
    for kind in KINDS[:1] if bench.quick else KINDS:
        figures += await _of_beats(bench, kind, count)
    return figures + await _of_deliveries(bench, count)


async def _of_beats(bench: Bench, kind: Kind, count: int) -> list[Figure]:
    spread: list[Beats] = []
    steady: list[Beats] = []
    async with stage(bench.where, kind) as running:
        fleet = await enlist(running.store)
        subscribers = await _subscribers(running, count)
        audience = await _audience(running, count)
        await running.start()
        await running.warm([*fleet.keys, audience.key])
        for _ in range(_repetitions(bench)):
            target = running.target(fleet, ONE_IN)
            spread.append(await _beats(bench, running, target, subscribers, nullcontext))
            changes = partial(changing, running.process, audience.key, CHANGES[-1])
            target = running.target(fleet)
            steady.append(await _beats(bench, running, target, audience.subscribers, changes))
    return [
        *_figures_of_beats(f"{kind}, {count:,} subscribers, 5% changes", spread, GOAL),
        *_figures_of_beats(f"{kind}, {count:,} told of {CHANGES[-1]} changes/s", steady, None),
    ]


async def _beats(
    bench: Bench,
    running: Stage,
    target: wrk.Target,
    subscribers: Sequence[Subscriber],
    changes: Callable[[], AbstractAsyncContextManager[None]],
) -> Beats:
    seconds = min(bench.seconds, SECONDS)
    await muster(running.store)
    async with changes():
        without = await wrk.rate(target, seconds)
    async with subscribed(running, subscribers) as opened:
        await muster(running.store)
        # Begun only now: those who subscribe find nothing that they have to catch up with.
        async with changes():
            with_them, deliveries = await asyncio.gather(
                wrk.rate(target, seconds), opened.deliveries(seconds)
            )
    measured = Beats(without, with_them, deliveries)
    bench.say(f"{running.kind}: {measured}")
    return measured


async def _of_deliveries(bench: Bench, count: int) -> list[Figure]:
    """On one store: lines come out of memory, and the store is asked four times a second."""
    ours: list[Mapping[int, Deliveries]] = []
    plain: list[Mapping[int, Deliveries]] = []
    async with stage(bench.where, KINDS[0]) as running, AsyncExitStack() as stack:
        audience = await _audience(running, count)
        await running.start()
        others = {
            changes: await stack.enter_async_context(serving(bench.where, _plain(changes)))
            for changes in CHANGES
        }
        for _ in range(_repetitions(bench)):
            ours.append(await _ours(bench, running, audience))
            plain.append({n: await _theirs(bench, each, count) for n, each in others.items()})
            bench.say(f"ours {ours[-1]}\nplain {plain[-1]}")
    return [
        figure
        for n in CHANGES
        for figure in _figures_of_deliveries(n * count, [d[n] for d in ours], [d[n] for d in plain])
    ]


async def _ours(bench: Bench, running: Stage, audience: Audience) -> Mapping[int, Deliveries]:
    found = {}
    async with subscribed(running, audience.subscribers) as opened:
        for changes in CHANGES:
            async with changing(running.process, audience.key, changes):
                await asyncio.sleep(SETTLING_SECONDS)
                found[changes] = await opened.deliveries(min(bench.seconds, SECONDS))
    return found


async def _theirs(bench: Bench, server: Process, count: int) -> Deliveries:
    file = bench.where.directory / f"{server.port}.streams"
    file.write_text("any 0\n" * count)
    async with streams(server, file) as opened:
        await asyncio.sleep(SETTLING_SECONDS)
        return await opened.deliveries(min(bench.seconds, SECONDS))


def _plain(changes: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "benchmarks.plain_sse", str(changes))


async def _subscribers(running: Stage, count: int) -> list[Subscriber]:
    """Of the first tenants of the fleet by turns, each with its tenant's one key."""
    names = sorted({key.tenant_id for key in await running.store.keys(None)})[:TENANTS]
    minted = await population.mint(names, ("read",))
    await population.admit(running.store, minted)
    readers = [(key.tenant_id, plaintext) for key, plaintext in minted]
    return [readers[n % len(readers)] for n in range(count)]


async def _audience(running: Stage, count: int) -> Audience:
    minted = await population.mint([AUDIENCE], ("ingest", "read"))
    await population.admit(running.store, minted)
    return Audience(minted[0][1], count)


def _repetitions(bench: Bench) -> int:
    return min(bench.repetitions, REPETITIONS)


def _figures_of_beats(name: str, found: Sequence[Beats], goal: float | None) -> list[Figure]:
    told = [each.deliveries for each in found]
    return [
        Figure(
            f"{name}: beats, of without",
            ratios([each.with_them for each in found], [each.without for each in found]),
            None if goal is None else at_least(goal),
        ),
        Figure(f"{name}: deliveries", [each.a_second for each in told], unit="/s"),
        Figure(f"{name}: 99% within", [each.p99_delay_ms for each in told], unit="ms"),
        Figure(f"{name}: cores of their own", [each.listeners_cpu for each in told]),
    ]


def _figures_of_deliveries(
    wanted: int, ours: Sequence[Deliveries], plain: Sequence[Deliveries]
) -> list[Figure]:
    name, costs = f"{wanted:,} deliveries/s", [each.cpu_microseconds for each in ours]
    return [
        Figure(
            f"{name}: processor time of one, of plain sse-starlette's",
            ratios(costs, [each.cpu_microseconds for each in plain]),
            at_most(0.4),
        ),
        Figure(f"{name}: processor time of one", costs, unit="µs"),
        Figure(f"{name}: reached", [each.a_second for each in ours], unit="/s"),
        Figure(f"{name}: reached by plain", [each.a_second for each in plain], unit="/s"),
        Figure(f"{name}: 99% within", [each.p99_delay_ms for each in ours], unit="ms"),
        Figure(f"{name}: 99% within, plain", [each.p99_delay_ms for each in plain], unit="ms"),
    ]
