"""A large part of a fleet dies within a second: when the last of them is told lost, and who waits.

Nobody waits 45 s for it. The dying are put into a new store with stamps that are most of the TTL
old, and then the collector starts: to it they are workers that beat until then and fell silent. A
store where no collector ever listened knows of no gap, so nothing holds the sweep back; and they
are there before its first scan, as workers are that have been silent for so long.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import population, wrk
from benchmarks.figures import Figure, ratios
from benchmarks.fleet import Sighting, enlist, muster, settle
from benchmarks.places import KINDS, Kind
from benchmarks.stage import stage
from benchmarks.streams import Streams, Subscriber, subscribed
from benchmarks.suite import Bench
from collector.clock import SystemClock
from collector.store.protocol import Store
from collector.sweep import TICK_SECONDS
from collector.values import SECOND, TTL

DYING, QUICK_DYING = 10_000, 1_000
# Each with one subscriber: nobody has more lines to read than the collector keeps for it.
TENANTS = 10
# One takes most of half a minute.
REPETITIONS = 2
SECONDS = 3
# From their entry into the store to the end of the last one's TTL; the collector starts meanwhile.
AHEAD = 14 * SECOND
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Death:
    """Seconds from the last one's TTL to its line, and the beats of the living."""

    told_after: float
    beats_before: float
    beats_meanwhile: float


async def measure(bench: Bench) -> Sequence[Figure]:
    figures: list[Figure] = []
    for kind in KINDS[:1] if bench.quick else KINDS:
        deaths = []
        for n in range(min(bench.repetitions, REPETITIONS)):
            deaths.append(await _death(bench, kind))
            bench.say(f"{kind}, repetition {n + 1}: {deaths[-1]}")
        figures += _figures(kind, deaths, _dying(bench))
    return figures


async def _death(bench: Bench, kind: Kind) -> Death:
    """On a new store every time: the next ones must not have a gap before them."""
    seconds = min(bench.seconds, SECONDS)
    async with stage(bench.where, kind) as running:
        fleet = await enlist(running.store)
        subscribers = await _subscribers(running.store)
        await muster(running.store)
        ends_at = SystemClock().now() + AHEAD
        await settle(running.store, _sightings(_dying(bench), ends_at - TTL))
        await running.start()
        await running.warm(fleet.keys)
        async with subscribed(running, subscribers) as opened:
            target = running.target(fleet)
            before = await wrk.rate(target, seconds)
            await _until(ends_at)
            meanwhile = await wrk.rate(target, seconds)
            told_at = await _all_told(opened, _dying(bench))
    return Death(told_at - ends_at / SECOND, before, meanwhile)


def _sightings(count: int, newest: int) -> list[Sighting]:
    """Their last beats, in the second up to `newest`."""
    stamps = [newest, *(newest - random.randrange(SECOND) for _ in range(count - 1))]
    return [(_tenant(n), f"dying-{n:05}", stamp) for n, stamp in enumerate(stamps)]


async def _subscribers(store: Store) -> list[Subscriber]:
    minted = await population.mint([_tenant(n) for n in range(TENANTS)], ("read",))
    await population.admit(store, minted)
    return [(key.tenant_id, plaintext) for key, plaintext in minted]


async def _until(moment: int) -> None:
    left = moment / SECOND - time.time()
    if left < 0:
        raise wrk.Void(f"void, the collector was ready {-left:.1f} s too late")
    await asyncio.sleep(left)


async def _all_told(opened: Streams, count: int) -> float:
    """When the last line arrived."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (counts := await opened.counts()).offline < count:
            await asyncio.sleep(0.1)
    return counts.arrived_at


def _tenant(n: int) -> str:
    return f"dying-{n % TENANTS}"


def _dying(bench: Bench) -> int:
    return QUICK_DYING if bench.quick else DYING


def _figures(kind: Kind, deaths: Sequence[Death], count: int) -> list[Figure]:
    after = [each.told_after for each in deaths]
    before = [each.beats_before for each in deaths]
    tick = f"{TICK_SECONDS:g} s"
    return [
        Figure(f"{kind}: {count:,} told lost after the TTL; the tick is {tick}", after, unit="s"),
        Figure(
            f"{kind}: beats of the living meanwhile, of before",
            ratios([each.beats_meanwhile for each in deaths], before),
        ),
    ]
