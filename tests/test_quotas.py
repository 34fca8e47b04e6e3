"""What one tenant may have and do, and that it costs the others nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from collector.errors import QuotaExceeded, StoreUnavailable
from collector.quotas import Answer, Quotas
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import Beat
from tests.factories import beat
from tests.fleet import Fleet, TestClock
from tests.test_doors import check_problem


@pytest.fixture
async def limited(store: Store, clock: TestClock) -> AsyncIterator[Fleet]:
    limits = {"max_workers": 2, "max_keys": 3, "max_beats_per_second": 5}
    async with Fleet.over(store, clock, **limits) as running:
        yield running


async def admitted(quotas: Quotas, sent: Beat) -> Answer:
    """Count the beat as its endpoint does; what is returned ends its commit."""
    is_live = quotas.knows(sent) or await quotas.is_live(sent)
    return quotas.admit(sent, lambda _: None, is_live=is_live)


async def test_a_worker_too_many_is_told_at_once_and_those_alive_go_on(limited: Fleet) -> None:
    for name in ("a", "b"):
        assert (await limited.beat(name)).status_code == 202

    refused = await limited.beat("c")

    problem = check_problem(refused, 429, "quota_exceeded")
    assert "2 live workers" in problem["detail"]
    assert refused.headers["retry-after"] == "10"
    assert (await limited.beat("a", status="busy")).status_code == 202
    assert (await limited.beat("c", tenant="blue")).status_code == 202


async def test_of_many_at_once_as_many_come_in_as_may(store: Store, clock: TestClock) -> None:
    async with Fleet.over(store, clock, max_workers=3) as fleet:
        await fleet.key()
        answers = await asyncio.gather(*(fleet.beat(f"w-{n % 20}") for n in range(40)))

        inside = {worker["agent_id"] for worker in await fleet.roster()}

    assert len(inside) == 3
    assert sorted(answer.status_code for answer in answers) == [202] * 6 + [429] * 34


async def test_a_count_changes_nothing_for_those_who_are_in(limited: Fleet) -> None:
    await limited.beat("a")
    await limited.app.state.parts.quotas.count()

    assert (await limited.beat("b")).status_code == 202
    assert (await limited.beat("c")).status_code == 429
    await limited.app.state.parts.quotas.count()
    assert (await limited.beat("b")).status_code == 202
    assert (await limited.beat("c")).status_code == 429


async def test_those_whom_another_process_let_in_are_known_from_its_start(
    store: Store, clock: TestClock
) -> None:
    await store.commit([beat("a"), beat("b")], now=clock.now(), gone=0)

    async with Fleet.over(store, clock, max_workers=2) as fleet:
        assert (await fleet.beat("c")).status_code == 429
        assert (await fleet.beat("a")).status_code == 202


async def test_there_is_room_at_once_when_one_leaves(limited: Fleet) -> None:
    await limited.beat("a")
    await limited.app.state.parts.quotas.count()
    await limited.beat("b")
    for name in ("a", "b"):
        await limited.beat(name, status="offline")
    limited.clock.move(1)

    statuses = [(await limited.beat(name)).status_code for name in ("c", "d")]

    assert statuses == [202, 202]


async def test_there_is_room_with_the_next_count_when_one_fell_silent(limited: Fleet) -> None:
    await limited.beat("a")
    limited.clock.move(30)
    await limited.beat("b")
    limited.clock.move(15.1)
    assert (await limited.beat("c")).status_code == 429

    await limited.app.state.parts.quotas.count()

    assert (await limited.beat("c")).status_code == 202
    assert (await limited.beat("a")).status_code == 429


async def test_after_an_outage_those_who_were_in_come_back(limited: Fleet) -> None:
    for name in ("a", "b"):
        await limited.beat(name)
    await limited.app.state.parts.quotas.count()

    limited.clock.move(60)

    assert [(await limited.beat(name)).status_code for name in "ab"] == [202, 202]
    assert (await limited.beat("c")).status_code == 429


async def test_a_leave_is_never_one_too_many(limited: Fleet) -> None:
    for name in ("a", "b"):
        await limited.beat(name)

    assert (await limited.beat("c", status="offline")).status_code == 202
    assert (await limited.beat("d")).status_code == 429


async def test_a_beat_that_was_not_committed_takes_no_place(store: Store, clock: TestClock) -> None:
    quotas = Quotas(store, clock, Settings(max_workers=1))

    (await admitted(quotas, beat("a")))(StoreUnavailable("the disk is full"))

    (await admitted(quotas, beat("b")))(None)
    with pytest.raises(QuotaExceeded):
        await admitted(quotas, beat("a"))


async def test_a_worker_that_comes_while_it_is_counted_is_not_forgotten(
    store: Store, clock: TestClock
) -> None:
    quotas = Quotas(store, clock, Settings(max_workers=1))

    answer = await admitted(quotas, beat("a"))
    await quotas.count()
    answer(None)

    with pytest.raises(QuotaExceeded):
        await admitted(quotas, beat("b"))


class Asked:
    """A store that counts what is asked of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.times: Counter[str] = Counter()

    def __getattr__(self, name: str) -> object:
        self.times[name] += 1
        return getattr(self._store, name)


@pytest.mark.parametrize(("most", "asked"), [(0, {}), (5, {"worker": 2})])
async def test_a_worker_that_is_known_costs_no_question(
    store: Store, clock: TestClock, most: int, asked: dict[str, int]
) -> None:
    watched = Asked(store)
    quotas = Quotas(watched, clock, Settings(max_workers=most))  # type: ignore[arg-type]

    for n in range(20):
        (await admitted(quotas, beat(f"w-{n % 2}", seconds=n)))(None)

    assert dict(watched.times) == asked


async def test_a_beat_too_many_in_one_second_is_told(limited: Fleet) -> None:
    statuses = [(await limited.beat("a")).status_code for _ in range(7)]

    assert statuses == [202] * 5 + [429] * 2
    assert (await limited.beat("a", tenant="blue")).status_code == 202
    limited.clock.move(1)
    assert (await limited.beat("a")).status_code == 202


async def test_a_key_too_many_is_told(limited: Fleet) -> None:
    headers = await limited.headers()
    sent = {"scopes": ["read"]}
    answers = [await limited.http.post("/v1/keys", headers=headers, json=sent) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [201, 201, 429]
    check_problem(answers[2], 429, "quota_exceeded")
    assert answers[2].headers["retry-after"]


async def test_of_twenty_keys_asked_for_at_once_none_is_one_too_many(limited: Fleet) -> None:
    headers = await limited.headers()
    asked = (
        limited.http.post("/v1/keys", headers=headers, json={"scopes": ["read"]}) for _ in range(20)
    )

    answers = await asyncio.gather(*asked)

    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(201), statuses.count(429)) == (2, 18)
    assert await limited.store.active_keys("acme", now=limited.clock.now()) == 3


async def test_a_successor_beside_its_key_is_one_too_many_too(limited: Fleet) -> None:
    headers = await limited.headers()
    sent = {"scopes": ["read"]}
    made = [await limited.http.post("/v1/keys", headers=headers, json=sent) for _ in range(2)]
    path = f"/v1/keys/{made[0].json()['id']}/rotate"

    beside = await limited.http.post(path, headers=headers, json={"overlap_seconds": 60})
    at_once = await limited.http.post(path, headers=headers, json={"overlap_seconds": 0})

    check_problem(beside, 429, "quota_exceeded")
    assert at_once.status_code == 201


async def test_without_limits_nothing_is_counted(fleet: Fleet) -> None:
    assert not fleet.app.state.parts.quotas.are_on
