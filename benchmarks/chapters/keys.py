"""What keys cost those who beat: a cold start with a thousand of them, and floods of wrong ones.

Those who beat do so steadily, at half of what the collector takes at most: a machine without room
could only share what it has. Half of the most is half of the machine, and argon2 alone would take
all of it: so a cold start beside that load takes twice as long as alone, whoever has the processor
when. It is measured beside a quarter too. A wrong key with a public part of nobody's costs the
collector a look-up; with that of a key that nobody has used yet it costs an argon2 run; with one
that is in use it costs nothing more.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

from benchmarks import population, strangers, wrk
from benchmarks.figures import Figure, at_least, at_most, ratios
from benchmarks.fleet import Fleet, enlist, muster
from benchmarks.paced import paced
from benchmarks.places import KINDS, Kind
from benchmarks.population import Minted
from benchmarks.stage import Stage, stage
from benchmarks.suite import Bench
from collector.settings import Settings

COLD_KEYS, QUICK_COLD_KEYS = 1000, 100
COLD_TENANTS = 50
UNUSED_KEYS = 50
# One cold start takes most of a minute.
COLD_STARTS, FLOODS = 2, 5
SECONDS = 2
PACE = 0.5
COLD_PACES = (0.25, PACE)
# Until the steady load is there.
STARTING_SECONDS = 1

UNKNOWN = "unknown keys"
GUESSED = "wrong secrets of keys in use"
GUESSED_UNUSED = "wrong secrets of unused keys"

Steady = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class ColdStart:
    """Seconds until everybody was served, and what is beside it."""

    served: float
    bare: float
    kept_up: float


@dataclass(frozen=True)
class Flood:
    """What kept up without, and with each kind of wrong key; and how many a second came."""

    alone: float
    beside: dict[str, float]
    a_second: dict[str, float]


async def measure(bench: Bench) -> Sequence[Figure]:
    count = QUICK_COLD_KEYS if bench.quick else COLD_KEYS
    bench.say(f"minting {count} keys")
    cold = await population.mint([f"cold-{n % COLD_TENANTS:02}" for n in range(count)], ("ingest",))
    figures: list[Figure] = []
    for kind in KINDS[:1] if bench.quick else KINDS:
        figures += await _measure(bench, kind, cold)
    return figures


async def _measure(bench: Bench, kind: Kind, cold: Sequence[Minted]) -> list[Figure]:
    async with stage(bench.where, kind) as running:
        fleet = await enlist(running.store)
        used = [key.id for key in await running.store.keys(None)]
        unused = await population.mint(["unused"] * UNUSED_KEYS, ("ingest",))
        kinds = {UNKNOWN: [], GUESSED: used, GUESSED_UNUSED: [key.id for key, _ in unused]}
        await population.admit(running.store, [*cold, *unused])
        seconds = min(bench.seconds, SECONDS)
        starts: dict[float, list[ColdStart]] = {pace: [] for pace in COLD_PACES}
        for n, pace in product(range(min(bench.repetitions, COLD_STARTS)), COLD_PACES):
            starts[pace].append(await _cold_start(running, fleet, cold, seconds, pace))
            bench.say(f"{kind}, cold start {n + 1} at {pace:.0%}: {starts[pace][-1]}")
        floods = []
        for n in range(min(bench.repetitions, FLOODS)):
            floods.append(await _flood(running, fleet, kinds, seconds))
            bench.say(f"{kind}, flood {n + 1}: {floods[-1]}")
    of_starts = (_of_cold_starts(kind, starts[pace], len(cold), pace) for pace in COLD_PACES)
    return [*chain.from_iterable(of_starts), *_of_floods(kind, floods)]


async def _cold_start(
    running: Stage, fleet: Fleet, cold: Sequence[Minted], seconds: int, pace: float
) -> ColdStart:
    """The collector starts anew, and knows nobody's key but those of the fleet that beats."""
    bare = await strangers.bare_verification(cold, Settings().verifiers)
    await running.start()
    await running.warm(fleet.keys)
    steady = await _steady(running, fleet, seconds, pace)
    serving = asyncio.create_task(strangers.all_served(running, cold))
    kept_up = [await steady()]
    while not serving.done():
        kept_up.append(await steady())
    # The last window began while some waited and ended when none did.
    return ColdStart(await serving, bare, statistics.mean(kept_up[:-1] or kept_up))


async def _flood(
    running: Stage, fleet: Fleet, kinds: Mapping[str, Collection[str]], seconds: int
) -> Flood:
    steady = await _steady(running, fleet, seconds)
    found = Flood(await steady(), {}, {})
    for kind, ids in kinds.items():
        found.beside[kind], found.a_second[kind] = await asyncio.gather(
            steady(), strangers.flood(running, ids, seconds + STARTING_SECONDS)
        )
    return found


async def _steady(running: Stage, fleet: Fleet, seconds: int, pace: float = PACE) -> Steady:
    """The load of those whose keys are known: at each call, the share of it that kept up."""
    await muster(running.store)
    target = running.target(fleet)
    rate = await wrk.rate(target, seconds) * pace

    async def kept_up() -> float:
        host, port = running.process.host, running.process.port
        return (await paced(host, port, target.fleet, rate, seconds)).kept_up

    return kept_up


def _of_cold_starts(
    kind: Kind, starts: Sequence[ColdStart], count: int, pace: float
) -> list[Figure]:
    served = [each.served for each in starts]
    head = f"{kind} at {pace:.0%} of its most"
    return [
        Figure(
            f"{head}: {count:,} cold keys served, times bare argon2",
            ratios(served, [each.bare for each in starts]),
            at_most(2),
        ),
        Figure(f"{head}: the same in seconds", served, unit="s"),
        Figure(
            f"{head}: known keys' beats that keep up meanwhile",
            [each.kept_up for each in starts],
            at_least(0.8),
        ),
    ]


def _of_floods(kind: Kind, floods: Sequence[Flood]) -> list[Figure]:
    alone = [each.alone for each in floods]
    figures: list[Figure] = []
    for wrong in (UNKNOWN, GUESSED, GUESSED_UNUSED):
        beside = ratios([each.beside[wrong] for each in floods], alone)
        figures += (
            Figure(f"{kind}: beats beside a flood of {wrong}, of without", beside, at_least(0.8)),
            Figure(f"{kind}: {wrong}", [each.a_second[wrong] for each in floods], unit="/s"),
        )
    return figures
