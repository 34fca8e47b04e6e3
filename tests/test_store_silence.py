"""Silence: whose it is, who announces it, and how often; the same on every store."""

from __future__ import annotations

import asyncio

from collector.settings import Settings
from collector.store.open import store_for
from collector.store.protocol import Store
from collector.values import NO_GAP, SECOND, Ahead, Gap, RosterQuery, Silent, Spell
from collector.workers import liveness
from tests.factories import at, beat


async def commit(store: Store, *agent_ids: str, seconds: float = 0) -> None:
    beats = [beat(agent_id, seconds=seconds) for agent_id in sorted(agent_ids)]
    await store.commit(beats, now=at(seconds), gone=NO_GAP)


async def kinds(store: Store) -> list[str]:
    return [event.type for event in await store.events("acme", after=0, limit=1000)]


async def test_silent_workers_are_those_announced_online_with_an_old_stamp(store: Store) -> None:
    await commit(store, "quiet", "left")
    await commit(store, "alive", seconds=20)
    await store.commit([beat("left", seconds=1, status="offline")], now=at(1), gone=NO_GAP)

    assert await store.silent(before=at(20), limit=10) == [Silent("acme", "quiet", at(0))]


async def test_a_lost_worker_is_announced_once(store: Store) -> None:
    await commit(store, "worker-1")
    silent = await store.silent(before=at(1), limit=10)

    assert await store.announce_lost(silent, before=at(1)) == {"acme"}
    assert await store.announce_lost(silent, before=at(1)) == frozenset()

    assert await kinds(store) == ["online", "offline"]
    assert await store.spells("acme", "worker-1", since=0) == [Spell(at(0), at(45), "lost")]
    (_, offline) = await store.events("acme", after=0, limit=10)
    assert (offline.at, offline.reason) == (at(45), "lost")


async def test_a_worker_whose_stamp_is_exactly_the_limit_is_not_announced(store: Store) -> None:
    await store.commit([beat(seconds=1)], now=at(1), gone=NO_GAP)
    silent = [Silent("acme", "worker-1", at(1))]

    assert await store.announce_lost(silent, before=at(1)) == frozenset()
    assert await store.announce_lost(silent, before=at(1) + 1) == {"acme"}


async def test_a_worker_that_beat_since_is_not_announced(store: Store) -> None:
    await commit(store, "worker-1")
    silent = await store.silent(before=at(1), limit=10)
    await commit(store, "worker-1", seconds=50)

    await store.announce_lost(silent, before=at(5))

    assert "lost" not in {e.reason for e in await store.events("acme", after=2, limit=10)}


async def test_a_stale_candidate_that_beat_but_fell_silent_again_is_announced(store: Store) -> None:
    await commit(store, "worker-1")
    silent = await store.silent(before=at(1), limit=10)
    await commit(store, "worker-1", seconds=10)

    await store.announce_lost(silent, before=at(11))

    assert await kinds(store) == ["online", "offline"]


async def test_a_lost_worker_comes_back_without_a_second_offline(store: Store) -> None:
    await commit(store, "worker-1")
    await store.announce_lost([Silent("acme", "worker-1", at(0))], before=at(1))

    await commit(store, "worker-1", seconds=100)

    assert await kinds(store) == ["online", "offline", "online"]


async def test_however_many_sweep_each_lost_worker_has_one_announcer(
    store: Store, store_url: str
) -> None:
    names = [f"w{n:03}" for n in range(100)]
    await commit(store, *names)
    others = [store_for(Settings(store_url=store_url)) for _ in range(3)]
    for other in others:
        await other.open()
    silent = await store.silent(before=at(1), limit=1000)

    await asyncio.gather(
        *(each.announce_lost(silent, before=at(1)) for each in (store, *others) for _ in range(5))
    )

    # A row that another sweeper held was passed over by the rest: a last sweep finds none left.
    assert await store.silent(before=at(1), limit=1000) == []
    assert sorted(await kinds(store)) == ["offline"] * 100 + ["online"] * 100
    for other in others:
        await other.close()


async def test_a_worker_that_is_named_twice_is_announced_once(store: Store) -> None:
    await commit(store, "worker-1")
    silent = await store.silent(before=at(1), limit=10)

    await store.announce_lost([*silent, *silent], before=at(1))

    assert await kinds(store) == ["online", "offline"]


async def test_announcing_nobody_does_nothing(store: Store) -> None:
    assert await store.announce_lost([], before=at(1)) == frozenset()


async def test_a_gap_is_more_than_15_s_in_which_no_collector_listened(store: Store) -> None:
    assert await store.listen("one", now=at(0)) is None
    assert await store.listen("two", now=at(15)) is None

    gap = await store.listen("one", now=at(30.000001))

    assert gap == Gap(at(15), at(30.000001))
    assert await store.gaps(since=at(30)) == [gap]
    assert await store.gaps(since=at(31)) == []


async def test_several_collectors_that_find_a_gap_record_it_once(
    store: Store, store_url: str
) -> None:
    await store.listen("old", now=at(0))
    other = store_for(Settings(store_url=store_url))
    await other.open()

    found = await asyncio.gather(
        *(each.listen(f"{n}", now=at(100)) for n in range(5) for each in (store, other))
    )

    assert await store.gaps(since=0) == [Gap(at(0), at(100))]
    assert sum(gap is not None for gap in found) == 1
    await other.close()


async def test_a_stamp_ahead_is_pulled_back_to_one_beat_after_a_beat(store: Store) -> None:
    await commit(store, "worker-1", seconds=7200)
    await commit(store, "right", seconds=0)

    assert await store.ahead(now=at(0)) == Ahead(1, 0, 0, 7200 * SECOND)
    assert await store.mend(now=at(0), limit=10) == 1
    assert await store.mend(now=at(0), limit=10) == 0

    stamps = {w.agent_id: w.last_seen for w in await store.roster("acme", RosterQuery(), now=at(0))}
    assert stamps == {"worker-1": at(-15), "right": at(0)}
    assert await store.spells("acme", "worker-1", since=0) == [Spell(at(-15), None, None)]
    assert await kinds(store) == ["online", "online"]


async def test_a_worker_that_was_lost_ahead_of_now_stays_lost(store: Store) -> None:
    await commit(store, "worker-1", seconds=7200)
    silent = [Silent("acme", "worker-1", at(7200))]
    await store.announce_lost(silent, before=at(7201))

    await store.mend(now=at(0), limit=10)

    row = await store.worker("acme", "worker-1")
    assert row is not None
    assert liveness(row, at(0)).reason == "lost"
    assert await kinds(store) == ["online", "offline"]


async def test_a_beat_that_was_under_way_counts_although_its_row_is_mended_first(
    store: Store,
) -> None:
    await commit(store, "worker-1", seconds=7200)
    await store.mend(now=at(12), limit=10)

    left = beat("worker-1", seconds=0, status="offline")
    await store.commit([left], now=at(12), gone=NO_GAP)

    assert await kinds(store) == ["online", "left"]


async def test_what_a_stamp_ahead_had_begun_is_mended_after_a_beat_overwrote_it(
    store: Store,
) -> None:
    await commit(store, "worker-1", seconds=7200)
    await commit(store, "worker-1", seconds=0)

    await store.mend(now=at(1), limit=10)
    await store.commit([beat("worker-1", seconds=9, status="offline")], now=at(9), gone=NO_GAP)

    assert await store.spells("acme", "worker-1", since=0) == [Spell(at(0), at(9), "left")]
