"""Every route's real answer is exactly what its model says: no field less, none more."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from collector.api.operations import OPERATIONS, Door
from contract.event import Change, Snapshot, Vitals
from tests.factories import body
from tests.fleet import Fleet
from tests.test_events import following
from tests.test_timeline_http import listen_for, pause_for

MODELLED = {door: each for door, each in OPERATIONS.items() if each.answer.model is not None}
SENT: dict[Door, Any] = {
    ("POST", "/v1/agents/heartbeat"): body("w"),
    ("POST", "/v1/keys"): {"scopes": ["read"], "name": "n", "expires_in_seconds": 90.0},
    ("POST", "/v1/keys/{key_id}/rotate"): {"overlap_seconds": 60},
}
ASKED: dict[Door, dict[str, Any]] = {
    ("GET", "/v1/agents"): {"limit": 2},
    ("DELETE", "/v1/agents"): {"region": "iad"},
    ("GET", "/v1/audit"): {"limit": 1},
    ("GET", "/v1/gaps"): {"since": 0},
    ("GET", "/v1/events"): {"last": 1000},
}
EVERYTHING: dict[str, Any] = {
    "status": "busy",
    "active_sessions": 3,
    "version": "1.0",
    "project": "lobby",
    "region": "iad",
    "host": "h",
    "started_at": 1_783_200_000.5,
    "ts": 1_783_200_000.25,
    "dispatch_name": "d",
    "memory_rss_bytes": 10,
    "memory_total_bytes": 100,
    "cpu_pct": 12.5,
}


async def a_full_store(fleet: Fleet) -> None:
    """Workers that left, are lost, in conflict, plain and with every field; a gap; acts."""
    await fleet.beat("lost", agent_name="other")
    await pause_for(fleet, 20)
    await listen_for(fleet, 70)
    await pause_for(fleet, 20)
    await fleet.beat("w", **EVERYTHING)
    await fleet.beat("w", **{**EVERYTHING, "started_at": 1.0})
    await fleet.beat("left", status="offline")
    await fleet.beat("gone")
    headers = await fleet.headers()
    await fleet.http.delete("/v1/agents/gone", headers=headers)
    await fleet.http.post("/v1/keys", headers=headers, json={"scopes": ["read"]})
    await fleet.sign_in()


async def call(fleet: Fleet, door: Door) -> bytes:
    method, path = door
    is_browsers = path == "/v1/sessions/current"
    headers = await (fleet.sign_in() if is_browsers else fleet.headers())
    key_id = (await fleet.key())[3:11]
    answer = await fleet.http.request(
        method,
        path.format(agent_id="lost" if path.endswith("timeline") else "w", key_id=key_id),
        headers=headers,
        params=ASKED.get(door),
        json=SENT.get(door),
    )
    assert answer.status_code == MODELLED[door].answer.status, answer.text
    return answer.content


@pytest.mark.parametrize("door", MODELLED, ids=" ".join)
async def test_an_answer_has_exactly_the_fields_of_its_model(fleet: Fleet, door: Door) -> None:
    await a_full_store(fleet)
    model = MODELLED[door].answer.model
    assert model is not None

    answer = await call(fleet, door)

    assert model.model_validate_json(answer, strict=True, extra="forbid")


async def test_a_poll_without_a_cursor_has_exactly_the_fields_of_a_snapshot(fleet: Fleet) -> None:
    await a_full_store(fleet)

    answer = (await fleet.get("/v1/events")).json()

    assert all(is_exactly(Snapshot, event) for event in answer["events"])
    assert answer["events"]


async def test_every_frame_of_the_feed_has_exactly_the_fields_of_its_model(fleet: Fleet) -> None:
    async with following(fleet) as stream:
        snapshot = await stream.next()
        await fleet.beat("w", **EVERYTHING)
        change = await stream.next()
        await fleet.app.state.parts.feed._channels["acme"].take_vitals()
        vitals = await stream.next()

    assert is_exactly(Snapshot, snapshot["data"])
    assert is_exactly(Change, change["data"])
    assert is_exactly(Vitals, vitals["data"])


def is_exactly(model: type[BaseModel], data: dict[str, Any]) -> bool:
    return bool(model.model_validate(data, strict=True, extra="forbid"))
