"""What is old goes by itself, and nothing else does; on every store, by the moved clock."""

from __future__ import annotations

import asyncio

import pytest

from collector import retention
from collector.errors import InvalidField, StoreUnavailable
from collector.retention import Retention
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat, RosterQuery
from tests.factories import at, beat
from tests.fleet import Fleet, TestClock
from tests.test_store_keys import key

DAY_SECONDS = 86_400


def keeping(store: Store, clock: TestClock, **settings: int) -> Retention:
    return Retention(store, clock, Settings(**settings))  # type: ignore[arg-type]


async def commit(store: Store, *beats: Beat) -> None:
    for each in beats:
        await store.commit([each], now=each.last_seen, gone=NO_GAP)


async def ids(store: Store, tenant: str = "acme") -> list[str]:
    roster = await store.roster(tenant, RosterQuery(), now=0)
    return sorted(worker.agent_id for worker in roster)


async def numbers(store: Store, tenant: str = "acme") -> list[int]:
    return [line.n for line in await store.events(tenant, after=0, limit=1000)]


async def test_a_worker_unseen_for_30_days_is_forgotten(store: Store, clock: TestClock) -> None:
    await commit(store, beat("gone"), beat("later", seconds=1), beat("gone", tenant_id="blue"))
    keep = keeping(store, clock)

    clock.move(30 * DAY_SECONDS)
    await keep.tick()
    assert await ids(store) == ["gone", "later"]
    clock.move(1)
    await keep.tick()

    assert await ids(store) == ["later"]
    assert await ids(store, "blue") == []


async def test_a_forgotten_worker_is_logged_as_removed_at_that_moment(
    store: Store, clock: TestClock
) -> None:
    await commit(store, beat("gone"))
    clock.move(31 * DAY_SECONDS)

    await keeping(store, clock).tick()

    (removed,) = await store.events("acme", after=0, limit=10)
    assert (removed.n, removed.type, removed.at) == (2, "removed", clock.now())


async def test_lines_of_the_log_go_after_7_days(store: Store, clock: TestClock) -> None:
    await commit(store, beat("a"), beat("b", seconds=1), beat("c", seconds=2))
    clock.move(7 * DAY_SECONDS + 1)

    await keeping(store, clock).tick()

    assert await numbers(store) == [2, 3]


async def test_lines_of_the_log_go_by_count_too(store: Store, clock: TestClock) -> None:
    await commit(store, *(beat(f"w{n}") for n in range(5)), beat("only", tenant_id="blue"))

    await keeping(store, clock, events_keep=2).tick()

    assert await numbers(store) == [4, 5]
    assert await numbers(store, "blue") == [1]


async def test_spells_and_gaps_go_after_90_days(store: Store, clock: TestClock) -> None:
    await commit(store, beat("a"), beat("a", seconds=10, status="offline"), beat("a", seconds=11))
    for seconds in (0, 20, 40):
        await store.listen("one", now=at(seconds))
    keep = keeping(store, clock, forget_after_days=1000)

    clock.move(90 * DAY_SECONDS + 20)
    await keep.tick()

    assert [s.online_until for s in await store.spells("acme", "a", since=0)] == [None]
    assert [gap.ended_at for gap in await store.gaps(since=0)] == [at(20), at(40)]
    clock.move(1)
    await keep.tick()
    assert [gap.ended_at for gap in await store.gaps(since=0)] == [at(40)]


async def acts(store: Store, tenant: str = "acme") -> list[str]:
    told = await store.audit(tenant, before=None, limit=100)
    return [act.subject for act in reversed(told)]


async def act_each_day(store: Store, days: int) -> None:
    for day in range(days):
        await store.add_key(key(f"DAY{day:05}", created_at=at(day * DAY_SECONDS)))


async def test_acts_of_the_audit_go_after_365_days(store: Store, clock: TestClock) -> None:
    await act_each_day(store, 3)
    keep = keeping(store, clock)

    clock.move(365 * DAY_SECONDS)
    await keep.tick()
    assert await acts(store) == ["DAY00000", "DAY00001", "DAY00002"]
    clock.move(1)
    await keep.tick()

    assert await acts(store) == ["DAY00001", "DAY00002"]


async def test_acts_are_kept_for_as_long_as_is_said_and_0_is_for_ever(
    store: Store, clock: TestClock
) -> None:
    await act_each_day(store, 3)
    clock.move(100_000 * DAY_SECONDS)

    await keeping(store, clock, audit_keep_days=0).tick()
    assert len(await acts(store)) == 3
    await keeping(store, clock, audit_keep_days=99_999).tick()

    assert await acts(store) == ["DAY00001", "DAY00002"]


async def test_the_newest_act_stays_so_that_no_id_is_given_out_twice(
    store: Store, clock: TestClock
) -> None:
    await act_each_day(store, 3)
    newest = (await store.audit("acme", before=None, limit=1))[0].id
    clock.move(1000 * DAY_SECONDS)

    await keeping(store, clock).tick()

    assert await acts(store) == ["DAY00002"]
    await store.add_key(key("LATER222", created_at=clock.now()))
    assert (await store.audit("acme", before=None, limit=1))[0].id > newest


async def test_the_audit_is_cut_in_batches_of_every_tenants_acts(store: Store) -> None:
    for n in range(5):
        await store.add_key(key(f"KEY{n:05}", tenant_id=("acme", "blue")[n % 2]))

    pruned = [await store.prune_audit(before=at(1), limit=2) for _ in range(4)]

    assert pruned == [2, 2, 0, 0]
    assert (await acts(store), await acts(store, "blue")) == (["KEY00004"], [])


async def test_everything_goes_however_many_batches_it_takes(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "PAUSE_SECONDS", 0)
    names = [f"w{n}" for n in range(7)]
    await commit(store, *(beat(name) for name in names))
    await commit(store, *(beat(name, seconds=1, status="offline") for name in names))
    clock.move(100 * DAY_SECONDS)

    await keeping(store, clock).tick()

    assert await ids(store) == []
    assert [line.type for line in await store.events("acme", after=0, limit=100)] == ["removed"] * 7
    assert [await store.spells("acme", name, since=0) for name in names] == [[]] * 7


async def test_a_log_that_does_not_get_shorter_leaves_the_rest_its_turn(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    monkeypatch.setattr(retention, "MAX_BATCHES", 2)
    await commit(store, beat("a"), beat("a", seconds=1, status="offline"))
    await commit(store, *(beat(f"w{n}", seconds=2) for n in range(3)))
    clock.move(100 * DAY_SECONDS)
    keep = keeping(store, clock, forget_after_days=1000)

    assert await keep.tick() is True
    assert await store.spells("acme", "a", since=0) == []
    assert await numbers(store) == [3, 4, 5]
    assert await keep.tick() is True
    assert await keep.tick() is False
    assert await numbers(store) == []


async def test_with_nothing_old_nothing_goes(store: Store, clock: TestClock) -> None:
    await commit(store, beat("a"), beat("a", seconds=1, status="offline"), beat("b"))
    clock.move(DAY_SECONDS)

    await keeping(store, clock).tick()

    assert await ids(store) == ["a", "b"]
    assert await numbers(store) == [1, 2, 3]
    assert len(await store.spells("acme", "a", since=0)) == 1


@pytest.mark.parametrize(
    "name", ["forget_after_days", "events_keep_days", "events_keep", "spells_keep_days"]
)
def test_less_than_1_of_anything_is_not_a_setting(name: str) -> None:
    with pytest.raises(InvalidField, match=f"COLLECTOR_{name.upper()}"):
        Settings.from_environment({f"COLLECTOR_{name.upper()}": "0"})


async def test_settings_of_a_million_years_keep_everything(store: Store, clock: TestClock) -> None:
    ages = 10**12
    await commit(store, beat("a"))

    await keeping(
        store,
        clock,
        forget_after_days=ages,
        events_keep_days=ages,
        events_keep=10**30,
        spells_keep_days=ages,
    ).tick()

    assert await numbers(store) == [1]


async def test_beats_are_committed_while_old_rows_go(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    await commit(fleet.store, *(beat(f"old-{n:03}", tenant_id="acme") for n in range(50)))
    fleet.clock.move(31 * DAY_SECONDS)
    await fleet.key()

    cleaning = asyncio.create_task(fleet.app.state.parts.retention.tick())
    during = 0
    while not cleaning.done():
        assert (await fleet.beat(f"new-{during}")).status_code == 202
        during += not cleaning.done()
    await cleaning

    assert during >= 10
    assert len(await fleet.roster()) >= during


async def test_a_store_that_does_not_answer_is_asked_again(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FIRST_SECONDS", 0)
    monkeypatch.setattr(retention, "EVERY_SECONDS", 0)
    await commit(store, beat("gone"))
    clock.move(31 * DAY_SECONDS)
    keep = keeping(store, clock)
    turns = iter([StoreUnavailable("restarting")])
    tick = keep.tick

    async def fail_once() -> bool:
        if error := next(turns, None):
            raise error
        return await tick()

    monkeypatch.setattr(keep, "tick", fail_once)
    following = asyncio.create_task(keep.follow())
    async with asyncio.timeout(10):
        while await ids(store):
            await asyncio.sleep(0.01)
    following.cancel()
