"""What one tenant may have and do, and that it costs the others nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from collector.store.protocol import Store
from tests.fleet import Fleet, TestClock
from tests.test_doors import check_problem


@pytest.fixture
async def limited(store: Store, clock: TestClock) -> AsyncIterator[Fleet]:
    limits = {"max_workers": 2, "max_keys": 3, "max_beats_per_second": 5}
    async with Fleet.over(store, clock, **limits) as running:
        yield running


async def test_a_worker_too_many_is_told_and_those_alive_go_on(limited: Fleet) -> None:
    for name in ("a", "b"):
        assert (await limited.beat(name)).status_code == 202
    await limited.app.state.parts.quotas.count()

    refused = await limited.beat("c")

    problem = check_problem(refused, 429, "quota_exceeded")
    assert "2 live workers" in problem["detail"]
    assert refused.headers["retry-after"] == "10"
    assert (await limited.beat("a", status="busy")).status_code == 202
    assert (await limited.beat("c", tenant="blue")).status_code == 202


async def test_there_is_room_again_when_one_is_gone(limited: Fleet) -> None:
    await limited.beat("a")
    await limited.beat("b")
    await limited.beat("b", status="offline")
    await limited.app.state.parts.quotas.count()

    assert (await limited.beat("c")).status_code == 202


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
