"""`GET /v1/agents` and one worker of it, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from collector import documents
from collector.values import SECOND
from contract.worker import Roster, Worker
from tests.factories import START
from tests.fleet import Fleet

AWKWARD = [
    "a/b",
    "100%",
    "what?",
    "two words",
    "\"quoted\" 'too'",
    "größe",
    "漢字",
    "a%2Fb",
    "🤖",
    "#&=+;",
]


async def walk(fleet: Fleet, **query: Any) -> list[list[str]]:
    """The agent_ids of each page, until there is no next one."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        given: dict[str, str] = {"cursor": cursor} if cursor else {}
        answer = (await fleet.get("/v1/agents", **query, **given)).json()
        pages.append([worker["agent_id"] for worker in answer["workers"]])
        cursor = answer["next_cursor"]
        if cursor is None:
            return pages


async def test_the_roster_is_what_the_contract_says(fleet: Fleet) -> None:
    await fleet.beat(active_sessions=1, status="busy", memory_rss_bytes=1, memory_total_bytes=4)

    answer = (await fleet.get("/v1/agents")).json()

    assert Roster.model_validate(answer, extra="forbid", strict=True).workers
    assert set(answer["workers"][0]) == set(Worker.model_fields)
    assert answer["server_time"] == START / SECOND
    assert answer["next_cursor"] is None
    assert answer["workers"][0]["memory_pct"] == 25.0


async def test_the_whole_roster_is_newest_beat_first(fleet: Fleet) -> None:
    for name in ("first", "second", "third"):
        await fleet.beat(name)
        fleet.clock.move(1)

    assert [w["agent_id"] for w in await fleet.roster()] == ["third", "second", "first"]


async def test_pages_cover_the_roster_exactly_once(fleet: Fleet) -> None:
    for n in range(5):
        await fleet.beat(f"w{n}")
        fleet.clock.move(1)

    assert await walk(fleet, limit=2) == [["w4", "w3"], ["w2", "w1"], ["w0"]]
    assert await walk(fleet, limit=5) == [["w4", "w3", "w2", "w1", "w0"]]


async def test_a_walk_keeps_its_own_time_for_seen_within(fleet: Fleet) -> None:
    for n in range(3):
        await fleet.beat(f"w{n}")
    first = (await fleet.get("/v1/agents", limit=1, seen_within=10)).json()

    fleet.clock.move(11)
    second = (
        await fleet.get("/v1/agents", limit=5, seen_within=10, cursor=first["next_cursor"])
    ).json()

    assert len(second["workers"]) == 2
    assert await fleet.roster(limit=5, seen_within=10) == []


async def test_a_cursor_of_any_agent_id_is_taken_back(fleet: Fleet) -> None:
    for name in AWKWARD:
        await fleet.beat(name)

    pages = await walk(fleet, limit=1)

    assert sorted(name for page in pages for name in page) == sorted(AWKWARD)


async def test_filters_narrow_the_roster(fleet: Fleet) -> None:
    await fleet.beat("a", status="busy", project="p", region="iad")
    await fleet.beat("b", agent_name="other", project="q")
    await fleet.beat("c", status="offline")

    async def ids(**query: Any) -> list[str]:
        return sorted(w["agent_id"] for w in await fleet.roster(**query))

    assert await ids(status="busy") == ["a"]
    assert await ids(status=["busy", "offline"]) == ["a", "c"]
    assert await ids(agent_name="other") == ["b"]
    assert await ids(project="q", region="iad") == []
    assert await ids(region="iad") == ["a"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "10001"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"status": "purple"}, "status"),
        ({"seen_within": "-1"}, "seen_within"),
        ({"seen_within": "nan"}, "seen_within"),
        ({"seen_within": "1e99"}, "seen_within"),
        ({"seen_within": "1_0"}, "seen_within"),
        ({"region": "a\n"}, "region"),
        ({"limit": "5", "cursor": "nonsense"}, "cursor"),
        ({"limit": "5", "cursor": "é"}, "cursor"),
        ({"limit": "5", "cursor": "WzEsMiwiXHUwMDAwIl0"}, "cursor"),
        ({"limit": "5", "cursor": "WzEsMl0"}, "cursor"),
        ({"cursor": "WzEsMiwiYSJd"}, "limit"),
        ({"project": "a\0"}, "project"),
        ({"stauts": "idle"}, "stauts"),
        ({"limit": ["5", "6"]}, "limit"),
    ],
    ids=str,
)
async def test_a_wrong_query_is_refused_by_its_parameter(
    fleet: Fleet, query: dict[str, Any], field: str
) -> None:
    answer = await fleet.get("/v1/agents", **query)

    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


@pytest.mark.parametrize("agent_id", AWKWARD)
async def test_any_agent_id_has_an_address(fleet: Fleet, agent_id: str) -> None:
    await fleet.beat(agent_id)

    answer = await fleet.get(f"/v1/agents/{quote(agent_id, safe='')}")

    assert answer.status_code == 200
    assert answer.json()["agent_id"] == agent_id
    assert Worker.model_validate(answer.json(), extra="forbid", strict=True)


async def test_a_worker_called_heartbeat_has_an_address_too(fleet: Fleet) -> None:
    await fleet.beat("heartbeat")

    assert (await fleet.get("/v1/agents/heartbeat")).json()["agent_id"] == "heartbeat"


@pytest.mark.parametrize("path", ["unknown", "%00", "%ff", "a/b", "%", ""])
async def test_what_no_worker_is_called_is_not_found(fleet: Fleet, path: str) -> None:
    await fleet.beat("known")

    answer = await fleet.get(f"/v1/agents/{path}")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_another_tenants_worker_is_not_found(fleet: Fleet) -> None:
    await fleet.beat("mine", tenant="acme")

    assert (await fleet.get("/v1/agents/mine", tenant="blue")).status_code == 404
    assert await fleet.roster(tenant="blue") == []
    assert await fleet.roster(tenant="blue", limit=10) == []


async def test_two_processes_with_one_id_show_as_a_conflict(fleet: Fleet) -> None:
    await fleet.beat(started_at=200.0)
    fleet.clock.move(1)
    await fleet.beat(started_at=100.0)

    worker = await fleet.worker()
    assert (worker["conflict"], worker["started_at"]) == (True, 200.0)
    fleet.clock.move(45.1)
    assert (await fleet.worker())["conflict"] is False


async def test_a_roster_in_pieces_is_the_roster(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in range(5):
        await fleet.beat(f"w-{nth}")
    whole = (await fleet.get("/v1/agents")).json()

    monkeypatch.setattr(documents, "CHUNK", 2)

    assert (await fleet.get("/v1/agents")).json() == whole
    assert len(whole["workers"]) == 5
    assert (await fleet.get("/v1/agents", tenant="nobodys")).json()["workers"] == []
