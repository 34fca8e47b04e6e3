"""Group commit: batches, outcomes, bounds; over real stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from collector.errors import Internal, Overloaded, StoreUnavailable, Unstorable
from collector.intake import FEW, Batch, Intake
from collector.metrics import Metrics
from collector.store.protocol import Store
from collector.values import Beat, RosterQuery
from tests.factories import at, beat
from tests.fleet import TestClock


class Watched:
    """A store that lets a test hold commits back, fail them, and see their batches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.batches: list[list[str]] = []
        self.failures = 0
        self.ready = asyncio.Event()
        self.ready.set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        await self.ready.wait()
        self.batches.append([each.agent_id for each in beats])
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("held back by the test")
        return await self._store.commit(beats, now=now, gone=gone)


@asynccontextmanager
async def running(
    store: Watched, clock: TestClock, limit: int = 1000, kind: type[Intake] = Intake
) -> AsyncIterator[Intake]:
    intake = kind(store, clock, Metrics(), limit=limit)  # type: ignore[arg-type]
    intake.open()
    yield intake
    store.ready.set()
    await intake.close()


@pytest.fixture
def watched(store: Store) -> Watched:
    return Watched(store)


async def submitted(intake: Intake, *beats: Beat) -> list[BaseException | None]:
    return await asyncio.gather(*(intake.submit(each) for each in beats), return_exceptions=True)


async def present(store: Store, tenant: str = "acme") -> list[str]:
    found = await store.roster(tenant, RosterQuery(), now=at(0))
    return sorted(worker.agent_id for worker in found)


async def test_beats_that_wait_together_are_one_commit_in_key_order(
    watched: Watched, clock: TestClock
) -> None:
    async with running(watched, clock) as intake:
        await submitted(intake, *(beat(name) for name in "cab"))

    assert watched.batches == [["a", "b", "c"]]


async def test_of_one_workers_beats_in_a_batch_the_newest_stamp_wins(
    store: Store, watched: Watched, clock: TestClock
) -> None:
    async with running(watched, clock) as intake:
        outcomes = await submitted(
            intake, beat(seconds=1), beat(seconds=2, status="busy"), beat(seconds=0)
        )

    assert outcomes == [None] * 3
    found = await store.worker("acme", "worker-1")
    assert found is not None
    assert (found.status, found.last_seen) == ("busy", at(2))


async def test_a_batch_is_answered_while_the_next_one_is_under_way(
    watched: Watched, clock: TestClock
) -> None:
    told: list[str] = []

    class Told(Watched):
        async def commit(self, beats: Sequence[Beat], **_: int) -> frozenset[str]:
            told.append(f"{beats[0].agent_id} begins")
            await self.ready.wait()
            return frozenset()

    store = Told(watched._store)
    store.ready.clear()
    async with running(store, clock) as intake:
        intake.enter(beat("first"), lambda _: told.append("first is answered"))
        while not told:
            await asyncio.sleep(0)
        for n in range(FEW):
            intake.enter(beat(f"next-{n}"), lambda _: None)
        store.ready.set()

    assert told[:3] == ["first begins", "next-0 begins", "first is answered"]


async def test_who_was_answered_together_is_committed_together_again(
    watched: Watched, clock: TestClock
) -> None:
    async def again(intake: Intake, name: str, turns: int) -> None:
        await intake.submit(beat(name))
        for _ in range(turns):
            await asyncio.sleep(0)
        await intake.submit(beat(name, seconds=1))

    async with running(watched, clock) as intake:
        await asyncio.gather(*(again(intake, name, turns) for turns, name in enumerate("abcd")))

    assert watched.batches == [["a", "b", "c", "d"]] * 2


async def test_a_batch_has_at_most_half_of_those_who_wait(
    store: Store, watched: Watched, clock: TestClock
) -> None:
    watched.ready.clear()
    async with running(watched, clock) as intake:
        first = asyncio.create_task(submitted(intake, *(beat(f"a{n}") for n in range(4))))
        while intake._batch or not intake._waiting:
            await asyncio.sleep(0)
        others = asyncio.create_task(submitted(intake, *(beat(f"b{n:02}") for n in range(20))))
        while len(intake._batch) < 20:
            await asyncio.sleep(0)
        watched.ready.set()
        await first
        await others

    assert [len(batch) for batch in watched.batches] == [4, 12, 8]
    assert watched.batches[1][-1] == "b11"
    assert len(await present(store)) == 24


async def check_neighbours_survive(store: Store, clock: TestClock, kind: type[Intake]) -> None:
    """Three unstorable beats among forty: each hears its own outcome."""
    watched = Watched(store)
    beats = [beat(f"w{n:02}", active_sessions=-1 if n in (0, 17, 39) else n) for n in range(40)]

    async with running(watched, clock, kind=kind) as intake:
        outcomes = await submitted(intake, *beats)

    refused = {n for n, outcome in enumerate(outcomes) if isinstance(outcome, Unstorable)}
    assert refused == {0, 17, 39}
    assert await present(store) == [f"w{n:02}" for n in range(40) if n not in refused]


async def test_a_beat_that_cannot_be_stored_costs_its_neighbours_nothing(
    store: Store, clock: TestClock
) -> None:
    await check_neighbours_survive(store, clock, Intake)


async def test_of_a_batch_that_is_halved_each_part_is_answered_as_it_ends(
    store: Store, clock: TestClock
) -> None:
    class Slow(Watched):
        async def commit(self, beats: Sequence[Beat], **times: int) -> frozenset[str]:
            if any(each.agent_id == "bad" for each in beats):
                raise Unstorable("refused by the test")
            if beats[0].agent_id == "slow":
                await self.ready.wait()
            return await self._store.commit(beats, **times)

    slow = Slow(store)
    slow.ready.clear()
    told: list[str] = []
    async with running(slow, clock) as intake:
        for name in ("a", "bad", "slow"):
            intake.enter(beat(name), lambda _, name=name: told.append(name))  # type: ignore[misc]
        while len(told) < 2:
            await asyncio.sleep(0)
        assert told == ["a", "bad"]

    assert told == ["a", "bad", "slow"]


async def test_control_without_halving_the_neighbours_are_lost(
    store: Store, clock: TestClock
) -> None:
    class Whole(Intake):
        async def _commit(self, batch: Batch) -> None:
            await self._store_newest(batch)

    with pytest.raises(AssertionError):
        await check_neighbours_survive(store, clock, Whole)


async def test_a_place_is_given_back_once_however_a_batch_fails(
    store: Store, clock: TestClock
) -> None:
    class Broken(Watched):
        async def commit(self, beats: Sequence[Beat], **_: int) -> frozenset[str]:
            if len(beats) > 1:
                raise Unstorable("not all at once")
            if beats[0].agent_id == "b":
                raise RuntimeError("a defect")
            return frozenset()

    async with running(Broken(store), clock) as intake:
        outcomes = await submitted(intake, beat("a"), beat("b"))
        held, waiting = dict(intake._held), intake._waiting

    assert outcomes[0] is None
    assert isinstance(outcomes[1], Internal)
    assert (held, waiting) == ({}, 0)


async def test_an_older_beat_gets_its_chance_when_the_newest_cannot_be_stored(
    store: Store, watched: Watched, clock: TestClock
) -> None:
    async with running(watched, clock) as intake:
        older, newest = await submitted(
            intake, beat(seconds=1, version="ok"), beat(seconds=2, active_sessions=-1)
        )

    assert older is None
    assert isinstance(newest, Unstorable)
    found = await store.worker("acme", "worker-1")
    assert found is not None
    assert found.version == "ok"


async def test_a_failed_commit_is_tried_once_more(
    store: Store, watched: Watched, clock: TestClock
) -> None:
    watched.failures = 1

    async with running(watched, clock) as intake:
        assert await submitted(intake, beat("a"), beat("b")) == [None, None]

    assert watched.batches == [["a", "b"]] * 2
    assert await present(store) == ["a", "b"]


async def test_a_commit_that_fails_twice_is_told_to_its_own_callers_alone(
    store: Store, watched: Watched, clock: TestClock
) -> None:
    watched.failures = 2

    async with running(watched, clock) as intake:
        (lost,) = await submitted(intake, beat("a"))
        (kept,) = await submitted(intake, beat("b"))

    assert isinstance(lost, StoreUnavailable)
    assert kept is None
    assert await present(store) == ["b"]


async def test_a_caller_that_goes_away_does_not_cancel_its_neighbours(
    store: Store, watched: Watched, clock: TestClock
) -> None:
    watched.ready.clear()
    async with running(watched, clock) as intake:
        leaving = asyncio.create_task(intake.submit(beat("a")))
        staying = asyncio.create_task(intake.submit(beat("b")))
        await asyncio.sleep(0)

        leaving.cancel()
        watched.ready.set()

        await staying
    assert await present(store) == ["a", "b"]


async def test_a_full_queue_is_refused_and_one_tenant_holds_a_quarter_at_most(
    store: Store, watched: Watched, clock: TestClock
) -> None:
    watched.ready.clear()
    flood = [beat(f"w{n}") for n in range(10)]
    neighbours = [beat("w", tenant_id=f"tenant-{n}") for n in range(10)]

    async with running(watched, clock, limit=8) as intake:
        waiting = [asyncio.create_task(intake.submit(each)) for each in flood + neighbours]
        await asyncio.sleep(0)
        watched.ready.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert sum(outcome is None for outcome in outcomes[:10]) == 2
    assert sum(outcome is None for outcome in outcomes[10:]) == 6
    assert all(isinstance(outcome, Overloaded) for outcome in outcomes if outcome is not None)
    assert len(await present(store)) == 2


async def test_room_is_given_back_when_beats_are_answered(
    watched: Watched, clock: TestClock
) -> None:
    async with running(watched, clock, limit=8) as intake:
        for _ in range(10):
            assert await submitted(intake, beat("a"), beat("b")) == [None, None]
        assert not intake._held


async def test_stopping_commits_what_waits_and_refuses_what_comes(
    store: Store, watched: Watched, clock: TestClock
) -> None:
    async with running(watched, clock) as intake:
        waiting = asyncio.create_task(intake.submit(beat("a")))
        await asyncio.sleep(0)

    with pytest.raises(Overloaded):
        await intake.submit(beat("b"))
    await waiting
    assert await present(store) == ["a"]
