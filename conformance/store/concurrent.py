"""Calls for one worker at once: some order of them must explain what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product

from hypothesis import given
from hypothesis import settings as Settings
from hypothesis import strategies as st

from collector.store.protocol import Store
from collector.values import Silent
from conformance.store.calls import NO_GAP, SECOND, Call, Example, Sent, call, sent
from conformance.store.model import Model
from conformance.store.view import View, view

AGENT = "w"
# Equal stamps are the likeliest; the rest is late, ahead, or at the edge of a silence.
OFFS = st.sampled_from(
    [0, 0, 0, 0, 1, -1, -15 * SECOND, -45 * SECOND, -45 * SECOND - 1, 5 * SECOND + 1]
)
BEATS = sent(st.just((0, AGENT)), OFFS)
BEFORE = st.sampled_from([1, 0, 0, -15 * SECOND])


@dataclass(frozen=True)
class Remove:
    """A removal to be."""


@dataclass(frozen=True)
class Announce:
    """An announcement to be, of a stamp below the clock and this."""

    off: int


ACTIONS = st.one_of(BEATS, BEATS, st.builds(Remove), st.builds(Announce, BEFORE))
Action = Sent | Remove | Announce


@dataclass(frozen=True)
class Race:
    """What was before, and the calls that are then made at once."""

    before: tuple[Action, ...]
    together: tuple[Action, ...]


RACES = st.builds(
    Race,
    st.lists(ACTIONS, max_size=3).map(tuple),
    st.lists(ACTIONS, min_size=2, max_size=4).map(tuple),
)


@dataclass(frozen=True)
class Outcome:
    """What each of the calls answered, in the order of their making, and what is left."""

    answers: tuple[object, ...]
    left: View


def prove(doors: Sequence[Store], *, settings: Settings) -> None:
    """Raise if a race through these doors to one store ends as no order of its calls would.

    They are migrated and not open. One door may put all its writes in a row by itself: several
    are what meets in the store.
    """
    with asyncio.Runner() as runner:
        try:
            for door in doors:
                runner.run(door.open())
            settings(given(RACES)(lambda race: runner.run(_check(doors, race))))()
        finally:
            for door in doors:
                runner.run(door.close())


async def _check(doors: Sequence[Store], race: Race) -> None:
    example = Example()
    before = [_call(action, example) for action in race.before]
    together = [_call(action, example) for action in race.together]
    came = await _raced(doors, before, together, example)
    tried = 0
    async for outcome in _outcomes(before, together, example):
        if outcome == came:
            return
        tried += 1
    raise AssertionError(f"no order of {race.together} of {tried} ends in {came}")


def _call(action: Action, example: Example) -> Call:
    now = example.start
    match action:
        case Sent():
            return call("commit", [action.beat(example, now)], now=now, gone=NO_GAP)
        case Remove():
            return call("remove", example.tenant(0), [AGENT], now=now)
        case Announce(off):
            silent = [Silent(example.tenant(0), AGENT, now)]
            return call("announce_lost", silent, before=now + off)


async def _raced(
    doors: Sequence[Store], before: Iterable[Call], together: Sequence[Call], example: Example
) -> Outcome:
    for each in before:
        await each.on(doors[0])
    answers = await asyncio.gather(
        *(each.on(doors[n % len(doors)]) for n, each in enumerate(together))
    )
    return Outcome(tuple(answers), await _left(doors[0], example))


async def _outcomes(
    before: Sequence[Call], together: Sequence[Call], example: Example
) -> AsyncIterator[Outcome]:
    for order, passed_over in product(permutations(range(len(together))), _passed_over(together)):
        model = Model()
        for each in before:
            await each.on(model)
        answers: dict[int, object] = {n: frozenset() for n in passed_over}
        for n in order:
            if n not in passed_over:
                answers[n] = await together[n].on(model)
        in_turn = tuple(answers[n] for n in range(len(together)))
        yield Outcome(in_turn, await _left(model, example))


def _passed_over(together: Sequence[Call]) -> Iterator[frozenset[int]]:
    """Which announcements may have found the row held by a writer, and so done nothing."""
    announcements = [n for n, each in enumerate(together) if each.method == "announce_lost"]
    for size in range(len(announcements) + 1):
        yield from map(frozenset, combinations(announcements, size))


async def _left(store: Store, example: Example) -> View:
    tenant = example.tenant(0)
    return await view(store, [tenant], [(tenant, AGENT)])
