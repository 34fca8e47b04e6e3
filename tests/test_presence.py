"""`GET /v1/presence`, over HTTP."""

from __future__ import annotations

from tests.factories import at
from tests.fleet import Fleet


async def online(fleet: Fleet, tenant: str = "acme", **query: int) -> list[int]:
    answer = await fleet.get("/v1/presence", tenant=tenant, **query)
    assert answer.status_code == 200, answer.text
    counts: list[int] = answer.json()["online"]
    return counts


async def test_a_worker_that_comes_and_goes_within_a_step_is_counted_once(fleet: Fleet) -> None:
    for _ in range(3):
        await fleet.beat("w")
        fleet.clock.move(2)
        await fleet.beat("w", status="offline")
        fleet.clock.move(2)

    assert await online(fleet, steps=2, step_seconds=60) == [0, 1]


async def test_a_worker_that_came_this_moment_is_counted(fleet: Fleet) -> None:
    await fleet.beat("w")

    assert await online(fleet, steps=2, step_seconds=10) == [0, 1]


async def test_a_removed_worker_was_there_and_another_tenants_never(fleet: Fleet) -> None:
    await fleet.beat("w")
    await fleet.beat("other", tenant="blue")
    fleet.clock.move(10)
    await fleet.http.delete("/v1/agents/w", headers=await fleet.headers())
    fleet.clock.move(10)

    assert await online(fleet, steps=3, step_seconds=10) == [0, 1, 1]
    assert await online(fleet, steps=2, step_seconds=10, tenant="green") == [0, 0]


async def test_the_gaps_of_that_time_are_told(fleet: Fleet) -> None:
    await fleet.store.listen("another", now=at(0))
    fleet.clock.move(100)
    await fleet.store.listen("another", now=at(100))

    answer = await fleet.get("/v1/presence")

    assert [gap["seconds"] for gap in answer.json()["gaps"]] == [100.0]
