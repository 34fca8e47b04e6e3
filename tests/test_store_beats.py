"""What a committed batch does to rows, log and spells; the same on every store."""

from __future__ import annotations

from typing import Any

import pytest

from collector.errors import Unstorable
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat, Spell, Worker
from contract.vocabulary import COMPARED_FIELDS, VITAL_FIELDS
from tests.factories import at, beat


async def commit(
    store: Store, *beats: Beat, now: float | None = None, gone: int = NO_GAP
) -> frozenset[str]:
    moment = max(b.last_seen for b in beats) if now is None else at(now)
    return await store.commit(beats, now=moment, gone=gone)


async def log(store: Store, tenant: str = "acme") -> list[tuple[str, float, str | None]]:
    """The log as (type, seconds after the start, reason)."""
    events = await store.events(tenant, after=0, limit=1000)
    return [(e.type, (e.at - at(0)) / 1_000_000, e.reason) for e in events]


async def row(store: Store, agent_id: str = "worker-1") -> Worker:
    found = await store.worker("acme", agent_id)
    assert found is not None
    return found


async def spells(store: Store) -> list[Spell]:
    return await store.spells("acme", "worker-1", since=0)


async def test_every_field_of_a_beat_comes_back_as_it_was(store: Store) -> None:
    sent = beat(
        "wörker/1 %?'\"",
        status="busy",
        active_sessions=2**63 - 1,
        dispatch_name="漢字 🤖",
        ts=at(-1),
        memory_rss_bytes=1,
        memory_total_bytes=2**63 - 1,
        cpu_pct=0.1 + 0.2,
    )

    await commit(store, sent)

    found = await row(store, sent.agent_id)
    assert found[: len(sent) - 1] == sent[1:]
    assert (found.first_seen, found.conflict_seen) == (sent.last_seen, None)
    assert found.reported == "online"


async def test_a_first_beat_is_logged_as_online_and_begins_a_spell(store: Store) -> None:
    grew = await commit(store, beat())

    assert grew == {"acme"}
    assert await log(store) == [("online", 0, None)]
    assert await spells(store) == [Spell(at(0), None, None)]


async def test_a_beat_that_changes_nothing_writes_only_its_row(store: Store) -> None:
    await commit(store, beat())

    grew = await commit(store, beat(seconds=15, cpu_pct=50.0, memory_rss_bytes=9, ts=at(3)))

    assert grew == frozenset()
    assert await log(store) == [("online", 0, None)]
    assert (await row(store)).last_seen == at(15)
    assert (await row(store)).cpu_pct == 50.0


@pytest.mark.parametrize(
    "difference",
    [
        {"status": "busy"},
        {"active_sessions": 1},
        {"agent_name": "other"},
        {"project": None},
        {"region": "fra"},
        {"version": "2.0"},
        {"host": "host-2"},
        {"dispatch_name": "d"},
        {"started_at": at(5)},
    ],
    ids=lambda difference: next(iter(difference)),
)
async def test_a_beat_that_differs_in_a_compared_field_is_a_change(
    store: Store, difference: dict[str, Any]
) -> None:
    await commit(store, beat())

    await commit(store, beat(seconds=15, **difference))

    assert await log(store) == [("online", 0, None), ("changed", 15, None)]
    assert len(await spells(store)) == 1


async def test_a_late_beat_changes_nothing(store: Store) -> None:
    await commit(store, beat(seconds=15, status="busy"))
    before = await row(store)

    await commit(store, beat(seconds=14.999999, status="idle"), now=15)

    assert await row(store) == before
    assert await log(store) == [("online", 15, None)]


async def test_a_beat_with_an_equal_stamp_counts(store: Store) -> None:
    await commit(store, beat())

    await commit(store, beat(status="busy"))

    assert (await row(store)).status == "busy"
    assert await log(store) == [("online", 0, None), ("changed", 0, None)]


@pytest.mark.parametrize(("ahead", "overwritten"), [(5, False), (5.000001, True)])
async def test_a_stored_stamp_more_than_5_s_ahead_is_overwritten(
    store: Store, ahead: float, overwritten: bool
) -> None:
    await commit(store, beat(seconds=ahead))

    await commit(store, beat(seconds=0, status="busy"), now=0)

    assert ((await row(store)).last_seen == at(0)) is overwritten


async def test_a_leave_is_logged_once_and_ends_the_spell(store: Store) -> None:
    await commit(store, beat())
    await commit(store, beat(seconds=10, status="offline"))

    await commit(store, beat(seconds=11, status="offline"))

    assert await log(store) == [("online", 0, None), ("left", 10, None)]
    assert await spells(store) == [Spell(at(0), at(10), "left")]


async def test_a_leave_of_an_unknown_worker_makes_a_row(store: Store) -> None:
    await commit(store, beat(status="offline"))

    assert (await row(store)).status == "offline"
    assert await log(store) == [("left", 0, None)]
    assert await spells(store) == []


async def test_the_next_beat_brings_a_worker_that_left_back(store: Store) -> None:
    await commit(store, beat())
    await commit(store, beat(seconds=10, status="offline"))

    await commit(store, beat(seconds=20))

    assert [kind for kind, _, _ in await log(store)] == ["online", "left", "online"]
    assert await spells(store) == [Spell(at(0), at(10), "left"), Spell(at(20), None, None)]


@pytest.mark.parametrize(("silence", "told"), [(45, []), (45.000001, ["offline", "online"])])
async def test_a_return_past_the_ttl_logs_the_offline_that_nobody_announced(
    store: Store, silence: float, told: list[str]
) -> None:
    await commit(store, beat())

    await commit(store, beat(seconds=silence))

    assert [kind for kind, _, _ in await log(store)] == ["online", *told]


async def test_an_unannounced_offline_is_dated_45_s_after_the_last_beat(store: Store) -> None:
    await commit(store, beat(version="1.0"))

    await commit(store, beat(seconds=100, version="2.0"))

    assert await log(store) == [("online", 0, None), ("offline", 45, "lost"), ("online", 100, None)]
    assert await spells(store) == [Spell(at(0), at(45), "lost"), Spell(at(100), None, None)]
    versions = [e.worker["version"] for e in await store.events("acme", after=1, limit=2)]
    assert versions == ["1.0", "2.0"]


async def test_a_leave_past_the_ttl_logs_offline_and_then_left(store: Store) -> None:
    await commit(store, beat())

    await commit(store, beat(seconds=100, status="offline"))

    assert [kind for kind, _, _ in await log(store)] == ["online", "offline", "left"]
    assert await spells(store) == [Spell(at(0), at(45), "lost")]


async def test_a_silence_the_collector_caused_is_not_the_workers(store: Store) -> None:
    await commit(store, beat())

    await commit(store, beat(seconds=100), gone=at(0))

    assert await log(store) == [("online", 0, None), ("changed", 100, "collector_gap")]
    assert await spells(store) == [Spell(at(0), None, None)]


async def test_a_silence_from_before_the_gap_counts(store: Store) -> None:
    await commit(store, beat())

    await commit(store, beat(seconds=100), gone=at(0) + 1)

    assert [kind for kind, _, _ in await log(store)] == ["online", "offline", "online"]


async def test_a_second_process_with_the_same_id_is_logged_once_as_a_conflict(
    store: Store,
) -> None:
    older: dict[str, Any] = {"started_at": at(-60), "host": "a"}
    newer: dict[str, Any] = {"started_at": at(-30), "host": "b"}
    await commit(store, beat(seconds=0, **older))
    await commit(store, beat(seconds=1, **newer))

    for seconds in range(2, 40, 2):
        await commit(store, beat(seconds=seconds, **older))
        await commit(store, beat(seconds=seconds + 1, **newer))

    kinds = [kind for kind, _, _ in await log(store)]
    assert kinds == ["online", "changed", "conflict"]
    assert (await row(store)).conflict_seen == at(38)


async def test_while_a_conflict_lasts_the_higher_started_at_stays(store: Store) -> None:
    await commit(store, beat(seconds=0, started_at=at(-30)))

    await commit(store, beat(seconds=1, started_at=at(-60)))

    assert (await row(store)).started_at == at(-30)


async def test_a_conflict_ends_when_only_the_older_process_is_left(store: Store) -> None:
    await commit(store, beat(seconds=0, started_at=at(-30)))

    for seconds in range(1, 62, 15):
        await commit(store, beat(seconds=seconds, started_at=at(-60)))

    found = await row(store)
    assert found.conflict_seen == at(1)
    assert found.started_at == at(-60)


async def test_a_restart_is_a_change_and_no_conflict(store: Store) -> None:
    await commit(store, beat(started_at=at(-60)))

    await commit(store, beat(seconds=5, started_at=at(4)))

    assert await log(store) == [("online", 0, None), ("changed", 5, None)]
    assert (await row(store)).conflict_seen is None


async def test_log_lines_are_numbered_per_tenant_without_holes(store: Store) -> None:
    batch = [beat(f"w{n}", tenant_id=tenant) for tenant in ("acme", "blue") for n in range(3)]
    await commit(store, *batch)
    await commit(store, *(b._replace(status="busy", last_seen=at(1)) for b in batch))

    for tenant in ("acme", "blue"):
        events = await store.events(tenant, after=0, limit=100)
        assert [e.n for e in events] == [1, 2, 3, 4, 5, 6]
        assert [e.agent_id for e in events] == ["w0", "w1", "w2"] * 2


@pytest.mark.parametrize("size", [1, 2, 3, 1023, 1024, 1025, 2500])
async def test_a_batch_of_any_size_is_stored_whole(store: Store, size: int) -> None:
    await commit(store, *(beat(f"w{n:05}") for n in range(size)))

    events = await store.events("acme", after=0, limit=5000)
    assert [e.n for e in events] == list(range(1, size + 1))
    assert [e.agent_id for e in events] == [f"w{n:05}" for n in range(size)]


@pytest.mark.parametrize(
    "wrong",
    [{"active_sessions": -1}, {"active_sessions": 2**63}, {"status": "purple"}, {"host": "\ud800"}],
    ids=["negative", "too-large", "purple", "surrogate"],
)
async def test_a_batch_with_an_unstorable_beat_is_refused_whole(
    store: Store, wrong: dict[str, Any]
) -> None:
    with pytest.raises(Unstorable):
        await commit(store, beat("good"), beat("wrong", **wrong))

    assert await store.worker("acme", "good") is None
    assert await log(store) == []


async def test_the_store_goes_on_after_a_refused_batch(store: Store) -> None:
    with pytest.raises(Unstorable):
        await commit(store, beat("wrong", active_sessions=-1))

    await commit(store, beat("good"))

    assert await log(store) == [("online", 0, None)]


def test_compared_and_vital_fields_are_all_that_a_beat_says() -> None:
    key_and_stamp = {"tenant_id", "agent_id", "last_seen"}

    assert {*COMPARED_FIELDS, *VITAL_FIELDS} == {*Beat._fields} - key_and_stamp


async def test_an_empty_batch_commits_nothing(store: Store) -> None:
    assert await store.commit([], now=at(0), gone=NO_GAP) == frozenset()
