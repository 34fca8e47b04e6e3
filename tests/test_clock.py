"""The one clock: an anchor and the monotonic clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

from collector.clock import SystemClock, anchor_to
from collector.store.protocol import Store
from collector.values import SECOND


@pytest.fixture
def frozen() -> Iterator[FrozenDateTimeFactory]:
    with freeze_time("2026-11-16", real_asyncio=True) as factory:
        assert isinstance(factory, FrozenDateTimeFactory)
        yield factory


def test_it_begins_at_the_wall_clock_and_goes_on(frozen: FrozenDateTimeFactory) -> None:
    clock = SystemClock()
    began = clock.now()

    frozen.tick(timedelta(seconds=15))

    assert began == 1_794_787_200 * SECOND
    assert clock.now() - began == 15 * SECOND
    assert clock.skew() == 0


def test_a_jumping_wall_clock_moves_only_the_skew(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.now()

    monkeypatch.setattr("collector.clock._wall", lambda: before + 3600 * SECOND)

    assert clock.now() - before < SECOND
    assert clock.skew() > 3599 * SECOND


async def test_it_takes_the_stores_clock_where_there_is_one(frozen: FrozenDateTimeFactory) -> None:
    clock = SystemClock()

    async def ahead() -> int:
        frozen.tick(timedelta(seconds=2))  # the round trip
        return 5_000_000 * SECOND

    await anchor_to(ahead, clock)

    assert clock.now() == 5_000_001 * SECOND


async def test_a_reading_that_took_too_long_is_no_reading(frozen: FrozenDateTimeFactory) -> None:
    clock = SystemClock()
    before = clock.now()

    async def slow() -> int:
        frozen.tick(timedelta(seconds=4))
        return 5_000_000 * SECOND

    await anchor_to(slow, clock, within=SECOND)

    assert clock.now() == before + 4 * SECOND


async def test_a_store_without_a_clock_leaves_it_alone(frozen: FrozenDateTimeFactory) -> None:
    clock = SystemClock()
    before = clock.now()

    async def nothing() -> None:
        frozen.tick(timedelta(seconds=1))

    await anchor_to(nothing, clock)

    assert clock.now() == before + SECOND


async def test_a_real_store_and_this_machine_agree_about_now(store: Store) -> None:
    clock = SystemClock()
    before = clock.now()

    await anchor_to(store.time, clock)

    assert abs(clock.now() - before) < 60 * SECOND
