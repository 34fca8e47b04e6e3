"""Several collector processes on one PostgreSQL, behind one port.

wrk and PostgreSQL share the machine with them: where it has few cores, those bound the figure. So
how much each of the three takes is told beside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks import contenders, processes
from benchmarks.contenders import Window
from benchmarks.figures import Figure, ratios
from benchmarks.suite import Bench
from benchmarks.turns import take_turns

COUNTS = (1, 2)


async def measure(bench: Bench) -> Sequence[Figure]:
    async with AsyncExitStack() as stack:
        turns = {}
        for count in COUNTS:
            command = (*processes.SERVE, "--workers", str(count))
            ours = contenders.collector(bench.where, "cloud", command)
            running = await stack.enter_async_context(ours)
            # Each process verifies each key once.
            await running.window(bench.seconds)
            turns[_called(count)] = partial(running.window, bench.seconds)
        windows = await take_turns(bench, turns)
    one, two = (windows[_called(count)] for count in COUNTS)
    of = f"PostgreSQL: 2 processes, of 1, on {len(os.sched_getaffinity(0))} cores for everything"
    rates = [[each.rate for each in found] for found in (two, one)]
    return [
        Figure(of, ratios(*rates)),
        *(figure for name, found in windows.items() for figure in _shares(name, found)),
    ]


def _called(count: int) -> str:
    return f"{count} process" if count == 1 else f"{count} processes"


def _shares(name: str, windows: Sequence[Window]) -> list[Figure]:
    """Of one core."""
    used = {
        "the collector": [each.a_second("cpu") for each in windows],
        "PostgreSQL": [each.a_second("store cpu") for each in windows],
        "wrk": [each.wrk_cpu_seconds / each.seconds for each in windows],
    }
    return [
        Figure(f"{name}: beats a second", [each.rate for each in windows]),
        *(Figure(f"{name}: cores that {who} takes", share) for who, share in used.items()),
    ]
