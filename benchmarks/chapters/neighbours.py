"""Measures what one tenant's reads take from the others: beats beside them, and memory.

Each attack is made twice, in turns: on the collector whose beats are measured, and on another one
of the same machine, with a store of its own of the same kind. The machine is as busy both times,
so what a beat waits longer in the first case is what the collector lets one tenant take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks import neighbours
from benchmarks.figures import Figure, at_most, ratios
from benchmarks.memory import LIMIT_BYTES, MB, watched
from benchmarks.neighbours import CROWDS, LEAD_SECONDS, Neighbourhood
from benchmarks.paced import Paced
from benchmarks.places import KINDS, STORES, Kind
from benchmarks.readers import reading
from benchmarks.stage import stage
from benchmarks.suite import Bench

GOAL = 1.5
# One takes a quarter of a minute for each attack.
REPETITIONS = 5
SECONDS = 3


@dataclass(frozen=True)
class Beside:
    """The others' beats beside one attack, and what was found while it was made elsewhere."""

    here: Paced
    elsewhere: Paced
    peak_bytes: int


async def measure(bench: Bench) -> Sequence[Figure]:
    kinds = KINDS[:1] if bench.quick else KINDS
    return [figure for kind in kinds for figure in await _of_store(bench, kind)]


async def _of_store(bench: Bench, kind: Kind) -> list[Figure]:
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(stage(bench.where, kind)) for _ in range(2)]
        workers = neighbours.QUICK_WORKERS if bench.quick else neighbours.WORKERS
        ours, other = [await neighbours.settled(each, workers) for each in places]
        figures: list[Figure] = []
        for attack in CROWDS:
            found = []
            for n in range(min(bench.repetitions, REPETITIONS)):
                found.append(await _beside(bench, attack, ours, other, is_here_first=n % 2 == 0))
            figures += _figures(STORES[kind], attack, found)
        return figures


async def _beside(
    bench: Bench, attack: str, ours: Neighbourhood, other: Neighbourhood, *, is_here_first: bool
) -> Beside:
    beats: dict[bool, Paced] = {}
    peaks: dict[bool, int] = {}
    for is_here in (is_here_first, not is_here_first):
        for each in (ours, other):
            await each.begin()
        async with watched(ours.stage.process.popen.pid) as peak:
            beats[is_here] = await _window(bench, attack, ours, ours if is_here else other)
        peaks[is_here] = peak.bytes
    return Beside(beats[True], beats[False], peaks[True])


async def _window(bench: Bench, attack: str, ours: Neighbourhood, on: Neighbourhood) -> Paced:
    file = bench.where.directory / f"{on.stage.process.port}.readers"
    async with reading(on.stage.process.address, file, await on.crowd(attack)) as readers:
        await asyncio.sleep(LEAD_SECONDS)
        found = await ours.beats(min(bench.seconds, SECONDS))
    where = "here" if on is ours else "elsewhere"
    delays = f"p50 {found.median * 1000:.1f} ms, p99 {found.p99 * 1000:.1f}"
    bench.say(f"{ours.stage.kind}, {attack} {where}: {delays}; readers {readers}")
    return found


def _figures(store: str, attack: str, found: Sequence[Beside]) -> list[Figure]:
    here, elsewhere = [each.here.p99 for each in found], [each.elsewhere.p99 for each in found]
    lost = [float(each.here.refused + each.here.unanswered) for each in found]
    head = f"{store}, beside {attack}"
    return [
        Figure(
            f"{head}: p99, of beside the same elsewhere", ratios(here, elsewhere), at_most(GOAL)
        ),
        Figure(
            f"{head}: peak of memory",
            [max(each.peak_bytes for each in found) / MB],
            at_most(LIMIT_BYTES / MB),
            unit="MB",
        ),
        Figure(f"{head}: p99", [each * 1000 for each in here], unit="ms"),
        Figure(f"{head}: p99, the same elsewhere", [each * 1000 for each in elsewhere], unit="ms"),
        Figure(f"{head}: beats refused or not answered", lost),
    ]
