"""Silence noticed: the sweep and the listener, on every store, by the moved clock."""

from __future__ import annotations

import pytest

from collector import gaps
from collector.gaps import Listener
from collector.store.protocol import Store
from collector.sweep import Sweep
from collector.values import NO_GAP, Ahead
from tests.factories import at, beat
from tests.fleet import TestClock


async def commit(store: Store, *agent_ids: str, clock: TestClock, gone: int = NO_GAP) -> None:
    beats = [beat(agent_id, last_seen=clock.now()) for agent_id in sorted(agent_ids)]
    await store.commit(beats, now=clock.now(), gone=gone)


async def told(store: Store) -> list[tuple[str, str]]:
    events = await store.events("acme", after=0, limit=5000)
    return [(event.agent_id, event.type) for event in events if event.type != "online"]


async def live_through(seconds: int, clock: TestClock, *parts: Listener | Sweep) -> None:
    """Second by second, everybody does what they do in theirs."""
    for second in range(seconds):
        clock.move(1)
        for part in parts:
            if isinstance(part, Sweep):
                await part.tick()
            elif second % 5 == 4:
                await part.listen()


async def test_a_silent_worker_is_announced_within_two_seconds_of_its_ttl(
    store: Store, clock: TestClock
) -> None:
    tenants: list[frozenset[str]] = []
    listener = Listener(store, clock, "one")
    sweep = Sweep(store, clock, gone=listener.gone)
    await listener.listen()
    await commit(store, "worker-1", clock=clock)

    await live_through(45, clock, listener, sweep)
    assert await told(store) == []
    store.on_change(tenants.append)
    await live_through(2, clock, listener, sweep)

    assert await told(store) == [("worker-1", "offline")]
    assert tenants == [frozenset({"acme"})]


async def test_a_worker_whose_process_of_beats_is_gone_is_announced_by_another(
    store: Store, clock: TestClock
) -> None:
    await Listener(store, clock, "gone").listen()
    await commit(store, "worker-1", clock=clock)
    other = Listener(store, clock, "other")
    await other.listen()

    await live_through(47, clock, other, Sweep(store, clock, gone=other.gone))

    assert await told(store) == [("worker-1", "offline")]


async def test_after_ten_minutes_away_only_the_dead_worker_is_announced(
    store: Store, clock: TestClock
) -> None:
    names = [f"w{n:04}" for n in range(1000)]
    before = Listener(store, clock, "before")
    await before.listen()
    await commit(store, *names, "dead", clock=clock)

    clock.move(600)
    after = Listener(store, clock, "after")
    await after.listen()
    sweep = Sweep(store, clock, gone=after.gone)
    await live_through(10, clock, after, sweep)
    await commit(store, *names, clock=clock, gone=after.gone())
    for _ in range(2):
        await live_through(15, clock, after, sweep)
        await commit(store, *names, clock=clock, gone=after.gone())

    await live_through(5, clock, after, sweep)
    assert ("dead", "offline") not in await told(store)
    await live_through(2, clock, after, sweep)

    lost = [name for name, kind in await told(store) if kind == "offline"]
    assert lost == ["dead"]
    resumed = [e for e in await store.events("acme", after=1001, limit=5000) if e.type == "changed"]
    assert {e.reason for e in resumed} == {"collector_gap"}
    assert len(resumed) == 1000


async def test_in_a_crash_loop_what_was_listened_to_adds_up(store: Store, clock: TestClock) -> None:
    await Listener(store, clock, "first").listen()
    await commit(store, "dead", clock=clock)
    listened = 0
    for turn in range(4):
        clock.move(60)
        listener = Listener(store, clock, f"turn-{turn}")
        await listener.listen()
        await live_through(10, clock, listener, Sweep(store, clock, gone=listener.gone))
        listened += 10
    assert await told(store) == []

    clock.move(60)
    last = Listener(store, clock, "last")
    await last.listen()
    sweep = Sweep(store, clock, gone=last.gone)
    await live_through(19, clock, last, sweep)
    assert await told(store) == []
    await live_through(2, clock, last, sweep)

    assert listened == 40
    assert await told(store) == [("dead", "offline")]


async def test_a_collector_that_was_itself_stopped_counts_no_silence_until_it_listens(
    store: Store, clock: TestClock
) -> None:
    listener = Listener(store, clock, "one")
    await listener.listen()
    assert listener.gone() == NO_GAP

    clock.move(15)
    assert listener.gone() == NO_GAP
    clock.move(0.000001)
    assert listener.gone() == 0

    await listener.listen()
    assert listener.gone() == 0
    clock.move(20)
    await listener.listen()
    assert listener.gone() == 0
    assert (await store.gaps(since=0))[0].began_at == at(0)


HOURS = 7200


async def run_ahead(store: Store, clock: TestClock, *agent_ids: str) -> None:
    """A collector that starts with a clock two hours ahead, and is stopped a minute later."""
    clock.move(HOURS)
    ahead = Listener(store, clock, "ahead")
    await ahead.listen()
    await commit(store, *agent_ids, clock=clock, gone=ahead.gone())
    await live_through(60, clock, ahead, Sweep(store, clock, gone=ahead.gone))
    await commit(store, *agent_ids[1:], clock=clock, gone=ahead.gone())
    clock.move(-HOURS)


async def test_after_a_run_with_a_clock_ahead_silence_is_announced_again(
    store: Store, clock: TestClock
) -> None:
    await Listener(store, clock, "before").listen()
    await run_ahead(store, clock, "dies-ahead", "dies-later")
    listener = Listener(store, clock, "after")
    await listener.listen()
    before = await told(store)

    sweep = Sweep(store, clock, gone=listener.gone)
    await live_through(45, clock, listener, sweep)
    assert await told(store) == before
    await live_through(2, clock, listener, sweep)

    assert ("dies-later", "offline") in await told(store)
    assert (await store.ahead(now=clock.now())) == Ahead(0, 0, 0, 0)


async def test_a_gap_that_ends_ahead_of_now_is_cut_and_told(store: Store, clock: TestClock) -> None:
    await Listener(store, clock, "before").listen()
    await run_ahead(store, clock, "worker-1")
    began_at, now = at(0), clock.now()
    listener = Listener(store, clock, "after")

    await listener.listen()

    assert await store.gaps(since=0) == [(began_at, now)]
    assert listener.ahead is not None
    assert (listener.ahead.workers, listener.ahead.gaps, listener.ahead.collectors) == (1, 1, 1)

    clock.move(5)
    await listener.listen()
    assert listener.ahead is None


async def test_a_collector_that_runs_mends_what_comes_later(store: Store, clock: TestClock) -> None:
    listener = Listener(store, clock, "one")
    await listener.listen()
    clock.move(HOURS)
    await commit(store, "worker-1", clock=clock)
    clock.move(-HOURS)
    sweep = Sweep(store, clock, gone=listener.gone)

    await live_through(60 + 30 + 5 + 2, clock, listener, sweep)

    assert await told(store) == [("worker-1", "offline")]


async def test_a_collector_that_mends_for_long_listens_meanwhile(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "MEND_AT_ONCE", 1)
    honest = store.mend

    async def slowly(*, now: int, limit: int) -> int:
        clock.move(10)
        return await honest(now=now, limit=limit)

    await run_ahead(store, clock, "worker-1", "worker-2", "worker-3")
    monkeypatch.setattr(store, "mend", slowly)
    listener = Listener(store, clock, "one")

    await listener.listen()
    monkeypatch.undo()
    await listener.listen()

    assert await store.gaps(since=0) == []
    assert await store.ahead(now=clock.now()) == Ahead(0, 0, 0, 0)


async def test_a_clock_that_is_set_back_is_noticed_at_once(store: Store, clock: TestClock) -> None:
    listener = Listener(store, clock, "one")
    await listener.listen()
    clock.move(5)
    await listener.listen()
    await commit(store, "worker-1", clock=clock)

    clock.move(-10)
    await listener.listen()

    assert listener.ahead is not None
    assert (await store.ahead(now=clock.now())) == Ahead(0, 0, 0, 0)
