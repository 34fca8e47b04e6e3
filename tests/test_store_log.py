"""Removing, summing up, the log and its pruning; the same on every store."""

from __future__ import annotations

import asyncio

import pytest

from collector.store import workers
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat, Event, Gap, Group, Position, RosterQuery, Silent, Spell
from tests.factories import at, beat

EVERYTHING = 1000


async def commit(store: Store, *beats: Beat) -> None:
    """One commit a beat, so that each has its own place in the log."""
    for each in beats:
        await store.commit([each], now=each.last_seen, gone=NO_GAP)


async def lines(store: Store, tenant: str = "acme") -> list[Event]:
    return await store.events(tenant, after=0, limit=EVERYTHING)


async def numbers(store: Store, tenant: str = "acme") -> list[int]:
    return [line.n for line in await lines(store, tenant)]


async def ids(store: Store, tenant: str = "acme") -> list[str]:
    roster = await store.roster(tenant, RosterQuery(), now=at(0))
    return sorted(worker.agent_id for worker in roster)


async def spells(store: Store, agent_id: str = "worker-1") -> list[Spell]:
    return await store.spells("acme", agent_id, since=0)


# Removing


async def test_a_removed_worker_is_gone_and_logged_as_it_was(store: Store) -> None:
    await commit(store, beat(status="busy", active_sessions=3), beat("other"))

    assert await store.remove("acme", ["worker-1"], now=at(10)) == 1

    assert await ids(store) == ["other"]
    removed = (await lines(store))[-1]
    assert (removed.n, removed.type, removed.at, removed.reason) == (3, "removed", at(10), None)
    assert (removed.agent_id, removed.worker["active_sessions"]) == ("worker-1", 3)


async def test_removing_a_live_worker_ends_its_spell(store: Store) -> None:
    await commit(store, beat(), beat("other"))

    await store.remove("acme", ["worker-1"], now=at(10))

    assert await spells(store) == [Spell(at(0), at(10), "removed")]
    assert await spells(store, "other") == [Spell(at(0), None, None)]


@pytest.mark.parametrize(
    ("silent", "ended"),
    [(45, Spell(at(0), at(45), "removed")), (45.000001, Spell(at(0), at(45), "lost"))],
)
async def test_a_worker_that_is_removed_while_lost_was_online_until_its_ttl(
    store: Store, silent: float, ended: Spell
) -> None:
    await commit(store, beat())

    await store.remove("acme", ["worker-1"], now=at(silent))

    assert await spells(store) == [ended]


async def test_removing_a_worker_that_left_leaves_its_spell_as_it_ended(store: Store) -> None:
    await commit(store, beat(), beat(seconds=5, status="offline"))

    await store.remove("acme", ["worker-1"], now=at(10))

    assert await spells(store) == [Spell(at(0), at(5), "left")]


async def test_removing_an_unknown_worker_changes_nothing(store: Store) -> None:
    await commit(store, beat(), beat("theirs", tenant_id="blue"))

    assert await store.remove("acme", ["theirs"], now=at(1)) == 0
    assert await store.remove("nobody", ["worker-1"], now=at(1)) == 0

    assert await numbers(store) == [1]
    assert await ids(store, "blue") == ["theirs"]


async def test_the_next_beat_makes_a_removed_worker_anew(store: Store) -> None:
    await commit(store, beat())
    await store.remove("acme", ["worker-1"], now=at(10))

    await commit(store, beat(seconds=20))

    found = await store.worker("acme", "worker-1")
    assert found is not None
    assert found.first_seen == at(20)
    assert [line.type for line in await lines(store)] == ["online", "removed", "online"]
    assert await spells(store) == [Spell(at(0), at(10), "removed"), Spell(at(20), None, None)]


async def test_of_twenty_that_remove_a_worker_one_does(store: Store) -> None:
    await commit(store, beat())

    removed = await asyncio.gather(
        *(store.remove("acme", ["worker-1"], now=at(1)) for _ in range(20))
    )

    assert sorted(removed) == [False] * 19 + [True]
    assert await numbers(store) == [1, 2]


async def test_removing_wakes_those_who_follow_the_log(store: Store) -> None:
    await commit(store, beat())
    woken: list[frozenset[str]] = []
    store.on_change(woken.append)

    await store.remove("acme", ["worker-1"], now=at(1))
    await store.remove("acme", ["worker-1"], now=at(1))

    assert woken == [frozenset({"acme"})]


# Forgetting


async def test_only_workers_not_seen_since_are_forgotten_of_every_tenant(store: Store) -> None:
    await commit(
        store,
        beat("old"),
        beat("kept", seconds=10),
        beat("old", tenant_id="blue", seconds=9.999999),
        beat("kept", tenant_id="green", seconds=11),
    )

    grew = await store.forget(before=at(10), limit=EVERYTHING, now=at(100))

    assert grew == {"acme", "blue"}
    assert [await ids(store, t) for t in ("acme", "blue", "green")] == [["kept"], [], ["kept"]]
    assert [(e.type, e.at, e.agent_id) for e in await lines(store, "blue")] == [
        ("online", at(9.999999), "old"),
        ("removed", at(100), "old"),
    ]


async def test_forgetting_takes_no_more_than_its_limit_at_a_time(store: Store) -> None:
    await commit(store, *(beat(f"w{n}") for n in range(5)))
    left: list[int] = []

    while await store.forget(before=at(1), limit=2, now=at(100)):
        left.append(len(await ids(store)))

    assert left == [3, 1, 0]
    assert await numbers(store) == list(range(1, 11))


async def test_a_forgotten_worker_was_online_until_its_ttl(store: Store) -> None:
    await commit(store, beat())

    await store.forget(before=at(1), limit=10, now=at(86400))

    assert await spells(store) == [Spell(at(0), at(45), "lost")]


async def test_a_worker_that_beat_after_it_was_found_is_not_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(store, beat("old"), beat("back", seconds=20))
    found = [Silent("acme", "back", at(0)), Silent("acme", "old", at(0))]
    monkeypatch.setattr(workers, "forgettable", lambda *_: found)

    await store.forget(before=at(10), limit=10, now=at(20))

    assert await ids(store) == ["back"]


async def test_whoever_beats_while_others_are_forgotten_is_there_afterwards(store: Store) -> None:
    names = [f"w{n:02}" for n in range(20)]
    await commit(store, *(beat(name) for name in names))
    beats = [beat(name, seconds=100) for name in names]

    await asyncio.gather(
        *(store.forget(before=at(50), limit=3, now=at(100)) for _ in range(10)),
        *(store.commit([each], now=at(100), gone=NO_GAP) for each in beats),
    )

    assert await ids(store) == names
    told = await numbers(store)
    assert told == list(range(1, len(told) + 1))


# Summing up


async def test_a_summary_counts_statuses_as_they_are_read_at_now(store: Store) -> None:
    await commit(
        store,
        beat("left", seconds=50, status="offline", active_sessions=7),
        beat("lost", seconds=4.999999, status="busy", active_sessions=7),
        beat("busy", seconds=5, status="busy", active_sessions=2),
        beat("also-busy", seconds=50, status="busy", active_sessions=3),
        beat("idle", seconds=50),
        beat("other", seconds=50, agent_name="Billing", active_sessions=1),
        beat("theirs", seconds=50, tenant_id="blue"),
    )

    assert await store.summary("acme", now=at(50)) == [
        Group("Billing", "idle", 1, 1),
        Group("reception", "busy", 2, 5),
        Group("reception", "idle", 1, 0),
        Group("reception", "offline", 2, 0),
    ]


async def test_a_summary_adds_up_past_64_bits(store: Store) -> None:
    await commit(store, *(beat(f"w{n}", active_sessions=2**63 - 1) for n in range(3)))

    assert await store.summary("acme", now=at(0)) == [
        Group("reception", "idle", 3, 3 * (2**63 - 1))
    ]


async def test_a_tenant_without_workers_has_an_empty_summary(store: Store) -> None:
    assert await store.summary("acme", now=at(0)) == []


async def test_a_summary_is_in_the_order_of_code_points(store: Store) -> None:
    names = ["B", "a", "é", "Z", "漢", "10", "9"]
    await commit(store, *(beat(f"w{n}", agent_name=name) for n, name in enumerate(names)))

    summary = await store.summary("acme", now=at(0))

    assert [group.agent_name for group in summary] == sorted(names)


# Where the log stands


async def test_a_log_without_lines_has_its_floor_above_its_head(store: Store) -> None:
    position = await store.position("acme")

    assert (position.floor, position.head) == (1, 0)
    assert position.epoch


async def test_a_logs_floor_is_its_oldest_line_and_its_head_the_newest(store: Store) -> None:
    await commit(store, *(beat(f"w{n}", seconds=n) for n in range(5)))
    epoch = (await store.position("acme")).epoch

    await store.prune_events(before=at(2), keep=EVERYTHING, limit=EVERYTHING)
    assert await store.position("acme") == Position(epoch, 3, 5)
    await store.prune_events(before=at(9), keep=EVERYTHING, limit=EVERYTHING)
    assert await store.position("acme") == Position(epoch, 6, 5)
    await commit(store, beat("w9", seconds=9))
    assert await store.position("acme") == Position(epoch, 6, 6)


async def test_a_snapshot_is_the_roster_and_the_logs_head_at_one_moment(store: Store) -> None:
    async def write() -> None:
        for n in range(40):
            await commit(store, beat(f"w{n:02}"))

    writing = asyncio.create_task(write())
    while not writing.done():
        roster, position = await store.snapshot("acme", RosterQuery(), now=at(0))
        assert len(roster) == position.head
    await writing

    roster, position = await store.snapshot("acme", RosterQuery(), now=at(0))
    assert (len(roster), position.head) == (40, 40)


async def test_a_snapshot_keeps_what_matches_and_the_whole_logs_head(store: Store) -> None:
    await commit(store, beat("a", project="p"), beat("b"), beat("c", tenant_id="blue"))

    roster, position = await store.snapshot("acme", RosterQuery(project="p"), now=at(0))

    assert [worker.agent_id for worker in roster] == ["a"]
    assert position.head == 2


async def test_news_are_what_is_above_each_tenants_head(store: Store) -> None:
    await commit(store, beat("a"), beat("b"), beat("c", tenant_id="blue"), beat(tenant_id="green"))

    news = await store.news({"acme": 1, "blue": 0, "nobody": 0}, limit=10)

    assert {tenant: [line.n for line in lines] for tenant, lines in news.items()} == {
        "acme": [2],
        "blue": [1],
    }
    assert news["acme"] == await store.events("acme", after=1, limit=10)
    assert await store.news({}, limit=10) == {}


async def test_news_are_limited_in_all_and_fair(store: Store) -> None:
    await commit(store, beat("a"), beat("b"), beat("c"), beat("d", tenant_id="blue"))

    news = await store.news({"acme": 0, "blue": 0}, limit=3)

    assert {tenant: [line.agent_id for line in news[tenant]] for tenant in news} == {
        "acme": ["a", "b"],
        "blue": ["d"],
    }


# A worker's own lines


async def test_a_workers_lines_are_its_newest_in_order(store: Store) -> None:
    await commit(
        store,
        beat(),
        beat("other"),
        beat(tenant_id="blue"),
        *(beat(seconds=n, active_sessions=n) for n in range(1, 5)),
    )

    async def read(since: float, limit: int = EVERYTHING) -> list[int]:
        found = await store.worker_events("acme", "worker-1", since=at(since), limit=limit)
        return [line.n for line in found]

    assert await read(0) == [1, 3, 4, 5, 6]
    assert await read(3) == [5, 6]
    assert await read(3.000001) == [6]
    assert await read(0, limit=2) == [5, 6]
    assert await read(5) == []


async def test_a_workers_line_is_the_same_as_the_logs(store: Store) -> None:
    await commit(store, beat("wörker/1 %", dispatch_name="漢字", cpu_pct=0.5))

    assert await store.worker_events("acme", "wörker/1 %", since=0, limit=9) == await lines(store)


# Pruning the log


async def test_a_log_is_cut_before_its_first_line_that_is_young_enough(store: Store) -> None:
    await commit(store, *(beat(f"w{n}", seconds=n) for n in range(5)))

    pruned = await store.prune_events(before=at(3), keep=EVERYTHING, limit=EVERYTHING)

    assert pruned == 3
    assert await numbers(store) == [4, 5]


async def test_an_old_line_behind_a_younger_one_stays_so_that_there_are_no_holes(
    store: Store,
) -> None:
    await commit(store, beat("quiet"), beat("a", seconds=100))
    await store.announce_lost([Silent("acme", "quiet", at(0))], before=at(1))
    assert [line.at for line in await lines(store)] == [at(0), at(100), at(45)]

    await store.prune_events(before=at(50), keep=EVERYTHING, limit=EVERYTHING)

    assert await numbers(store) == [2, 3]


async def test_a_log_keeps_its_newest_lines_by_count(store: Store) -> None:
    await commit(store, *(beat(f"w{n}") for n in range(5)))

    assert await store.prune_events(before=0, keep=2, limit=EVERYTHING) == 3

    assert await numbers(store) == [4, 5]


async def test_each_log_is_cut_by_its_own_length(store: Store) -> None:
    await commit(
        store,
        *(beat(f"w{n}") for n in range(4)),
        *(beat(f"w{n}", tenant_id="blue") for n in range(2)),
        *(beat(f"w{n}", tenant_id="green") for n in range(3)),
    )

    assert await store.prune_events(before=0, keep=2, limit=EVERYTHING) == 3

    assert [await numbers(store, t) for t in ("acme", "blue", "green")] == [[3, 4], [1, 2], [2, 3]]


async def test_pruning_takes_no_more_lines_than_its_limit_over_all_logs(store: Store) -> None:
    await commit(
        store,
        *(beat(f"w{n}") for n in range(3)),
        *(beat(f"w{n}", tenant_id="blue") for n in range(3)),
    )
    pruned: list[int] = []

    while count := await store.prune_events(before=at(9), keep=EVERYTHING, limit=2):
        pruned.append(count)
        for tenant in ("acme", "blue"):
            left = await numbers(store, tenant)
            assert left == list(range(4 - len(left), 4))

    assert pruned == [2, 2, 2]


async def test_a_log_that_is_young_and_short_is_left_alone(store: Store) -> None:
    await commit(store, beat("a"), beat("b"))

    assert await store.prune_events(before=at(0), keep=2, limit=EVERYTHING) == 0

    assert await numbers(store) == [1, 2]


async def test_a_pruned_log_goes_on_with_its_next_number(store: Store) -> None:
    await commit(store, beat("a"))
    await store.prune_events(before=at(9), keep=EVERYTHING, limit=EVERYTHING)

    await commit(store, beat("b"))

    assert await numbers(store) == [2]


async def test_a_log_that_grows_while_it_is_cut_has_no_holes(store: Store) -> None:
    await commit(store, *(beat(f"w{n:02}") for n in range(20)))

    await asyncio.gather(
        *(store.prune_events(before=0, keep=5, limit=3) for _ in range(10)),
        *(store.commit([beat(f"x{n:02}")], now=at(0), gone=NO_GAP) for n in range(20)),
    )

    left = await numbers(store)
    assert left == list(range(left[0], 41))


# Pruning spells and gaps


async def test_spells_that_ended_before_are_pruned_and_lasting_ones_stay(store: Store) -> None:
    await commit(store, beat(), beat("lasting"))
    for n in (10, 20, 30):
        await commit(store, beat(seconds=n, status="offline"), beat(seconds=n + 1))

    assert await store.prune_spells(before=at(20), limit=EVERYTHING) == 1

    assert [spell.online_until for spell in await spells(store)] == [at(20), at(30), None]
    assert await spells(store, "lasting") == [Spell(at(0), None, None)]


async def test_pruning_takes_no_more_spells_than_its_limit(store: Store) -> None:
    for n in range(5):
        await commit(store, beat(f"w{n}"), beat(f"w{n}", seconds=1, status="offline"))

    pruned = [await store.prune_spells(before=at(9), limit=2) for _ in range(4)]

    assert pruned == [2, 2, 1, 0]


async def test_gaps_that_ended_before_are_pruned(store: Store) -> None:
    for second in (0, 100, 200, 300):
        await store.listen("one", now=at(second))

    assert await store.prune_gaps(before=at(200)) == 1

    assert await store.gaps(since=0) == [Gap(at(100), at(200)), Gap(at(200), at(300))]


async def test_the_newest_collector_is_never_pruned_so_that_its_gap_is_found(store: Store) -> None:
    await store.listen("old", now=at(0))
    await store.listen("newest", now=at(10))

    await store.prune_gaps(before=at(1000))

    assert await store.listen("next", now=at(2000)) == Gap(at(10), at(2000))
