"""Measures what quotas cost tenants that keep within them: beats a second with and without."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks import contenders
from benchmarks.figures import Figure, at_least, ratios
from benchmarks.places import STORES, Kind
from benchmarks.suite import Bench
from benchmarks.turns import take_turns

# Nobody reaches them: what is measured is the counting.
HIGH = {"COLLECTOR_MAX_WORKERS": "1000000", "COLLECTOR_MAX_BEATS_PER_SECOND": "1000000"}
WITH, WITHOUT = "with quotas", "without"
GOAL = 0.9


async def measure(bench: Bench) -> Sequence[Figure]:
    # One store after the other: collectors that only wait cost a little too.
    return [figure for kind in STORES for figure in await _of_store(bench, kind)]


async def _of_store(bench: Bench, kind: Kind) -> list[Figure]:
    async with AsyncExitStack() as stack:
        turns = {}
        for name, settings in ((WITH, HIGH), (WITHOUT, {})):
            ours = contenders.collector(bench.where, kind, settings=settings)
            running = await stack.enter_async_context(ours)
            # With quotas, a worker's first beat since the start asks the store who that is.
            await contenders.beat_once_each(running.process, running.fleet, running.fleet.numbers())
            turns[name] = partial(running.window, bench.seconds)
        windows = await take_turns(bench, turns)
    rates = [[each.rate for each in windows[name]] for name in (WITH, WITHOUT)]
    costs = [[each.a_beat("own cpu") for each in windows[name]] for name in (WITH, WITHOUT)]
    store = STORES[kind]
    return [
        Figure(f"{store}: beats with quotas on, of without", ratios(*rates), at_least(GOAL)),
        Figure(
            f"{store}: processor time of the answering process a beat, with quotas of without",
            ratios(*costs),
        ),
    ]
