"""`DELETE /v1/agents/{agent_id}`, over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import httpx2
import pytest

from collector.values import SECOND
from tests.factories import at
from tests.fleet import Fleet

AWKWARD = ["a/b", "%", "漢", "a%2Fb", "heartbeat", "what?", "timeline"]


async def remove(fleet: Fleet, path: str, *, tenant: str = "acme") -> httpx2.Response:
    return await fleet.http.delete(f"/v1/agents/{path}", headers=await fleet.headers(tenant))


@pytest.mark.parametrize("agent_id", AWKWARD)
async def test_a_removed_worker_is_gone(fleet: Fleet, agent_id: str) -> None:
    await fleet.beat(agent_id)
    await fleet.beat("other")

    answer = await remove(fleet, quote(agent_id, safe=""))

    assert (answer.status_code, answer.content) == (204, b"")
    assert [worker["agent_id"] for worker in await fleet.roster()] == ["other"]
    assert (await fleet.get(f"/v1/agents/{quote(agent_id, safe='')}")).status_code == 404


@pytest.mark.parametrize("path", ["unknown", "%00", "%ff", "%"])
async def test_an_unknown_worker_is_not_found(fleet: Fleet, path: str) -> None:
    await fleet.beat("known")

    answer = await remove(fleet, path)

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert len(await fleet.roster()) == 1


async def test_a_worker_is_removed_once(fleet: Fleet) -> None:
    await fleet.beat("w")

    assert [(await remove(fleet, "w")).status_code for _ in range(2)] == [204, 404]


async def test_the_next_beat_makes_it_anew(fleet: Fleet) -> None:
    await fleet.beat("w")
    await remove(fleet, "w")
    fleet.clock.move(15)

    await fleet.beat("w")

    assert (await fleet.worker())["first_seen"] == at(15) / SECOND


async def test_another_tenants_worker_is_not_found_and_stays(fleet: Fleet) -> None:
    await fleet.beat("w", tenant="acme")

    assert (await remove(fleet, "w", tenant="blue")).status_code == 404

    assert len(await fleet.roster(tenant="acme")) == 1


async def test_those_who_follow_are_told(fleet: Fleet) -> None:
    await fleet.beat("w", status="busy")
    cursor = (await fleet.get("/v1/events")).json()["cursor"]
    fleet.clock.move(1)

    await remove(fleet, "w")

    (told,) = (await fleet.get("/v1/events", after=cursor, wait=10)).json()["events"]
    assert (told["type"], told["at"]) == ("worker.removed", at(1) / SECOND)
    assert (told["worker"]["agent_id"], told["worker"]["status"]) == ("w", "busy")


async def test_a_wrong_method_is_told_both_right_ones(fleet: Fleet) -> None:
    answer = await fleet.http.put("/v1/agents/w")

    assert answer.status_code == 405
    assert {"GET", "DELETE"} <= set(answer.headers["allow"].split(", "))
