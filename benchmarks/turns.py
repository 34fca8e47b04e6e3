"""Variants that take turns, so that a noisy neighbour meets them all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from benchmarks.suite import Bench

T = TypeVar("T")
Turn = Callable[[], Awaitable[T]]


async def take_turns(
    bench: Bench, turns: Mapping[str, Turn[T]], repetitions: int = 0
) -> dict[str, list[T]]:
    """One turn each a repetition; another begins every time, so that nobody always comes first."""
    found: dict[str, list[T]] = {name: [] for name in turns}
    names = list(turns)
    for repetition in range(repetitions or bench.repetitions):
        first = repetition % len(names)
        for name in (*names[first:], *names[:first]):
            found[name].append(await turns[name]())
            bench.say(f"repetition {repetition + 1}: {name}: {found[name][-1]}")
    return found
