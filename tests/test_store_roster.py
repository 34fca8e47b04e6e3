"""Reading workers from a store; the same on every store."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from collector.store.protocol import Store
from collector.values import NO_GAP, Beat, RosterQuery, Walk
from collector.workers import liveness
from contract.vocabulary import STATUSES, Status
from tests.factories import at, beat

# Code points in an order that a language's own collation would change.
NAMES = ["B", "a", "Z", "é", "z", "Ω", "漢", "🤖", "_", "-", "aa", "aB", "10", "9"]


async def commit(store: Store, *beats: Beat) -> None:
    for each in beats:
        await store.commit([each], now=each.last_seen, gone=NO_GAP)


async def ids(store: Store, query: RosterQuery, *, now: float = 0) -> list[str]:
    return [worker.agent_id for worker in await store.roster("acme", query, now=at(now))]


async def test_a_whole_roster_is_newest_beat_first_then_by_id(store: Store) -> None:
    await commit(store, *(beat(name) for name in NAMES), beat("newest", seconds=1))

    found = await ids(store, RosterQuery())

    assert found == ["newest", *sorted(NAMES)]


async def test_a_walk_meets_every_worker_once_while_others_beat(store: Store) -> None:
    await commit(store, *(beat(name, seconds=n % 3) for n, name in enumerate(NAMES)))
    met: list[str] = []
    after: Walk | None = None

    for step in itertools.count(10):
        page = await store.roster("acme", RosterQuery(limit=2, after=after), now=at(step))
        if not page:
            break
        met += [worker.agent_id for worker in page]
        after = Walk(at(0), page[-1].first_seen, page[-1].agent_id)
        await commit(
            store, *(beat(name, seconds=step) for name in NAMES), beat(f"new-{step}", seconds=step)
        )

    assert sorted(met) == sorted(NAMES)


async def test_a_page_is_ordered_by_first_seen_and_id_descending(store: Store) -> None:
    await commit(store, beat("a"), beat("b"), beat("c", seconds=1), beat("a", seconds=9))

    assert await ids(store, RosterQuery(limit=10)) == ["c", "b", "a"]


async def test_another_tenants_workers_are_never_read(store: Store) -> None:
    await commit(store, beat("mine"), beat("theirs", tenant_id="blue"))

    assert await ids(store, RosterQuery()) == ["mine"]
    assert await store.worker("acme", "theirs") is None
    assert await store.events("acme", after=1, limit=10) == []
    assert await store.spells("acme", "theirs", since=0) == []


@pytest.mark.parametrize("field", ["agent_name", "project", "region"])
async def test_a_filter_keeps_what_is_equal_to_it(store: Store, field: str) -> None:
    lower: dict[str, Any] = {field: "x"}
    upper: dict[str, Any] = {field: "X"}
    await commit(store, beat("a", **lower), beat("b", **upper), beat("c"))

    assert await ids(store, RosterQuery(**lower)) == ["a"]


async def test_seen_since_keeps_what_beat_at_or_after_it(store: Store) -> None:
    await commit(store, beat("old", seconds=1), beat("new", seconds=2))

    assert await ids(store, RosterQuery(seen_since=at(2)), now=3) == ["new"]


@pytest.mark.parametrize("status", STATUSES)
async def test_a_status_is_matched_as_a_reader_sees_it(store: Store, status: Status) -> None:
    await commit(
        store,
        beat("left", seconds=50, status="offline"),
        *(beat(f"{s}-{n}", seconds=n, status=s) for s in ("idle", "busy") for n in (4.9, 5, 5.1)),
    )
    everybody = await store.roster("acme", RosterQuery(), now=at(50))

    found = await ids(store, RosterQuery(statuses=(status,)), now=50)

    assert found == [w.agent_id for w in everybody if liveness(w, at(50)).status == status]
    assert found
