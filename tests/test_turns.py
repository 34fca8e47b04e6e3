"""Pieces of large work, so many in one turn of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from collector.turns import Turns

pytestmark = pytest.mark.anyio


async def turn_by_turn(turns: Turns, callers: int) -> list[int]:
    """How many of the callers came in each turn of the loop."""
    came = 0

    async def take() -> None:
        nonlocal came
        await turns.take()
        came += 1

    tasks = [asyncio.create_task(take()) for _ in range(callers)]
    counts = []
    while came < callers:
        before = came
        await asyncio.sleep(0)
        counts.append(came - before)
    await asyncio.gather(*tasks)
    return counts


@pytest.mark.parametrize("at_once", [1, 4])
async def test_no_turn_has_more_than_its_places(at_once: int) -> None:
    counts = await turn_by_turn(Turns(at_once), 20)

    assert max(counts) == at_once
    assert sum(counts) == 20


async def test_whoever_came_first_is_first() -> None:
    turns, order = Turns(), list[int]()
    assert turns.is_mine()
    for n in range(5):
        turns.call(lambda n=n: order.append(n))  # type: ignore[misc]

    while len(order) < 5:
        assert not turns.is_mine()
        await asyncio.sleep(0)

    assert order == [0, 1, 2, 3, 4]


async def test_a_caller_that_was_cancelled_keeps_nobody_from_a_turn() -> None:
    turns = Turns()
    first, gone, last = (asyncio.create_task(turns.take()) for _ in range(3))
    await asyncio.sleep(0)
    gone.cancel()

    await asyncio.gather(first, gone, last, return_exceptions=True)

    assert [task.cancelled() for task in (first, gone, last)] == [False, True, False]
