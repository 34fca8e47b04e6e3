"""The feed as the OpenOrca console has it: shapes, frames, figures, isolation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

import httpx2
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from collector import channels
from collector.openorca import Surroundings, Tally, lasting, node, standings
from collector.values import NO_GAP, SECOND
from collector.workers import project
from tests.factories import START, at, beat, worker
from tests.fleet import Fleet

NOW = START / SECOND


class Strict(BaseModel):
    """Every field is there, has its type, and no other field is."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Node(Strict):
    id: str
    name: str
    machineId: str
    machineName: str
    status: Literal["active", "idle", "offline"]
    domain: str
    integrations: Annotated[list[Any], Field(max_length=0)]
    currentTaskId: None
    currentAction: Annotated[str, Field(min_length=1)]
    memoryUsage: float
    uptime: str
    tasksCompleted: int
    collaboratingWith: Annotated[list[Any], Field(max_length=0)]
    interventionRequired: Literal[False]
    activityLevel: Annotated[int, Field(ge=0, le=100)]
    loadedCores: Annotated[list[Any], Field(max_length=0)]
    knowledgeContributions: int
    graphAccess: Literal["read"]
    activeSessions: int


class Machine(Strict):
    id: str
    name: str
    os: str
    location: str
    isOnline: bool
    lastSeen: str


class FleetHealth(Strict):
    totalAgents: int
    activeAgents: int
    offlineAgents: int
    interventionsRequired: Literal[0]
    tasksInProgress: int
    tasksCompletedToday: Literal[0]
    swarmsActive: Literal[0]
    overallHealth: Literal["healthy", "degraded", "critical"]


class Meta(Strict):
    runtime: str
    generatedAt: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")]
    connectionStatus: Literal["connected"]


class Snapshot(Strict):
    agents: list[Node]
    tasks: Annotated[list[Any], Field(max_length=0)]
    actionLog: Annotated[list[Any], Field(max_length=0)]
    interventions: Annotated[list[Any], Field(max_length=0)]
    swarms: Annotated[list[Any], Field(max_length=0)]
    machines: list[Machine]
    fleetHealth: FleetHealth
    meta: Meta


class SnapshotReplace(Strict):
    type: Literal["snapshot.replace"]
    snapshot: Snapshot


class AgentUpdated(Strict):
    type: Literal["agent.updated"]
    agent: Node


class FleetUpdated(Strict):
    type: Literal["fleet.updated"]
    fleetHealth: FleetHealth


class RuntimeStatus(Strict):
    type: Literal["runtime.status"]
    status: Literal["connected"]


Frame = SnapshotReplace | AgentUpdated | FleetUpdated | RuntimeStatus
FRAME: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="type")])


class Console:
    """One open stream of the console's, its frames checked against the shapes above."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._lines = answer.aiter_lines()

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            async for line in self._lines:
                if line.startswith("data: "):
                    FRAME.validate_json(line[len("data: ") :])
                    frame: dict[str, Any] = json.loads(line[len("data: ") :])
                    return frame
                # `onmessage` hears no frame with a name; a keepalive is a comment.
                assert not line or line.startswith(":"), line
        raise EOFError

    async def begin(self) -> dict[str, Any]:
        """Past the first two frames; the snapshot."""
        whole, status = await self.next(), await self.next()
        assert (whole["type"], status["type"]) == ("snapshot.replace", "runtime.status")
        snapshot: dict[str, Any] = whole["snapshot"]
        return snapshot

    async def change(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """A node that changed, and the figures with it."""
        updated, fleet = await self.next(), await self.next()
        assert (updated["type"], fleet["type"]) == ("agent.updated", "fleet.updated")
        return updated["agent"], fleet["fleetHealth"]


@asynccontextmanager
async def console(fleet: Fleet, *, tenant: str = "acme") -> AsyncIterator[Console]:
    headers = await fleet.headers(tenant)
    async with fleet.http.stream("GET", "/openorca/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Console(answer)


async def snapshot(fleet: Fleet, *, tenant: str = "acme") -> dict[str, Any]:
    answer = await fleet.get("/openorca/snapshot", tenant=tenant)
    assert answer.status_code == 200, answer.text
    Snapshot.model_validate_json(answer.content)
    body: dict[str, Any] = answer.json()
    return body


async def fall_silent(fleet: Fleet) -> None:
    """45 seconds and more go by, the collector listening all the while."""
    parts = fleet.app.state.parts
    for _ in range(5):
        fleet.clock.move(10)
        await parts.listener.listen()
    await parts.sweep.tick()


def figures(health: dict[str, Any]) -> tuple[int, int, int, int, str]:
    return (
        health["totalAgents"],
        health["activeAgents"],
        health["offlineAgents"],
        health["tasksInProgress"],
        health["overallHealth"],
    )


async def test_what_is_supported_is_told_without_a_key(fleet: Fleet) -> None:
    told = (await fleet.http.get("/openorca/runtime-info")).json()

    assert (told["runtime"], told["language"]) == ("worker-presence", "python")
    assert told["version"]
    assert told["supports"] == {"sse": True, "snapshots": True, "interventions": False}


async def test_an_empty_fleet_has_every_field_and_is_healthy(fleet: Fleet) -> None:
    empty = await snapshot(fleet)

    assert (empty["agents"], empty["machines"]) == ([], [])
    assert figures(empty["fleetHealth"]) == (0, 0, 0, 0, "healthy")
    assert empty["meta"]["runtime"] == "worker-presence"
    assert datetime.fromisoformat(empty["meta"]["generatedAt"]).timestamp() == NOW


async def test_a_node_is_the_workers_own(fleet: Fleet) -> None:
    await fleet.beat(
        "w-1",
        status="busy",
        active_sessions=2,
        project="lobby",
        host="host-1",
        started_at=NOW - 3 * 3600 - 12 * 60 - 5,
        memory_rss_bytes=1,
        memory_total_bytes=8,
    )

    (only,) = (await snapshot(fleet))["agents"]

    assert only == {
        "id": "w-1",
        "name": "reception",
        "machineId": "host-1",
        "machineName": "host-1",
        "status": "active",
        "domain": "communications",
        "integrations": [],
        "currentTaskId": None,
        "currentAction": "busy, 2 sessions",
        "memoryUsage": 12.5,
        "uptime": "3h 12m",
        "tasksCompleted": 0,
        "collaboratingWith": [],
        "interventionRequired": False,
        "activityLevel": 40,
        "loadedCores": [],
        "knowledgeContributions": 0,
        "graphAccess": "read",
        "activeSessions": 2,
    }


async def test_workers_that_share_a_name_are_nodes_of_their_own(fleet: Fleet) -> None:
    await fleet.beat("w-1")
    fleet.clock.move(1)
    await fleet.beat("w-2")

    agents = (await snapshot(fleet))["agents"]

    assert [(agent["id"], agent["name"]) for agent in agents] == [
        ("w-2", "reception"),
        ("w-1", "reception"),
    ]


async def test_a_worker_that_says_next_to_nothing_has_every_field(fleet: Fleet) -> None:
    await fleet.beat("w-1", active_sessions=2**63 - 1)
    await fleet.beat("w-2", active_sessions=2**63 - 1, host="", project="")

    told = await snapshot(fleet)

    assert {agent["domain"] for agent in told["agents"]} == {"communications"}
    assert {agent["machineId"] for agent in told["agents"]} == {"unknown"}
    assert {(agent["memoryUsage"], agent["uptime"]) for agent in told["agents"]} == {(0, "")}
    assert told["fleetHealth"]["tasksInProgress"] == 2**64 - 2


async def test_every_host_is_a_machine(fleet: Fleet) -> None:
    await fleet.beat("w-1", host="b", region="iad")
    await fall_silent(fleet)
    fleet.clock.move(90)
    await fleet.beat("w-2", host="a", region="fra")
    await fleet.beat("w-3", host="a", region="fra", status="offline")

    told = (await snapshot(fleet))["machines"]

    assert told == [
        {
            "id": "a",
            "name": "a",
            "os": "unknown",
            "location": "fra",
            "isOnline": True,
            "lastSeen": "now",
        },
        {
            "id": "b",
            "name": "b",
            "os": "unknown",
            "location": "iad",
            "isOnline": False,
            "lastSeen": "2m ago",
        },
    ]


async def test_a_snapshot_needs_no_sweep_to_say_offline(fleet: Fleet) -> None:
    await fleet.beat("w-1", status="busy", active_sessions=3, started_at=NOW)
    fleet.clock.move(45.000001)

    told = await snapshot(fleet)

    (only,) = told["agents"]
    assert (only["status"], only["activeSessions"], only["uptime"]) == ("offline", 0, "")
    assert figures(told["fleetHealth"]) == (1, 0, 1, 0, "critical")


async def test_a_stream_begins_with_the_snapshot_that_the_other_door_gives(fleet: Fleet) -> None:
    await fleet.beat("w-1")

    async with console(fleet) as stream:
        assert await stream.begin() == await snapshot(fleet)


async def test_a_stream_goes_on_from_what_the_log_said_last(fleet: Fleet) -> None:
    await fleet.beat("w-1")
    fleet.clock.move(45.000001)
    assert (await snapshot(fleet))["agents"][0]["status"] == "offline"

    async with console(fleet) as stream:
        begun = await stream.begin()
        # The collector did not listen either: the silence counts only from here on.
        await fall_silent(fleet)
        await fall_silent(fleet)
        gone, health = await stream.change()

    assert begun["agents"][0]["status"] == "idle"
    assert figures(begun["fleetHealth"]) == (1, 0, 0, 0, "healthy")
    assert gone["currentAction"] == "offline, lost"
    assert figures(health) == (1, 0, 1, 0, "critical")


async def test_a_worker_appears_works_goes_silent_and_returns(fleet: Fleet) -> None:
    async with console(fleet) as stream:
        assert (await stream.begin())["agents"] == []

        await fleet.beat("w-1", started_at=NOW)
        appeared, one = await stream.change()
        await fleet.beat("w-1", started_at=NOW, status="busy", active_sessions=2)
        working, busy = await stream.change()
        await fall_silent(fleet)
        silent, lost = await stream.change()
        fleet.clock.move(30)
        await fleet.beat("w-1", started_at=NOW)
        returned, again = await stream.change()

    assert [each["id"] for each in (appeared, working, silent, returned)] == ["w-1"] * 4
    assert (appeared["status"], appeared["currentAction"]) == ("idle", "idle")
    assert (working["status"], working["currentAction"]) == ("active", "busy, 2 sessions")
    assert (silent["status"], silent["currentAction"]) == ("offline", "offline, lost")
    assert (returned["status"], returned["uptime"]) == ("idle", "1m")
    assert figures(one) == figures(again) == (1, 0, 0, 0, "healthy")
    assert figures(busy) == (1, 1, 0, 2, "healthy")
    assert figures(lost) == (1, 0, 1, 0, "critical")


async def test_a_leave_is_offline_and_no_loss(fleet: Fleet) -> None:
    await fleet.beat("w-1")
    async with console(fleet) as stream:
        await stream.begin()
        await fleet.beat("w-1", status="offline")
        left, health = await stream.change()

    assert (left["status"], left["currentAction"]) == ("offline", "offline, left")
    assert figures(health) == (1, 0, 1, 0, "healthy")


async def test_a_change_of_no_figure_sends_the_node_alone(fleet: Fleet) -> None:
    await fleet.beat("w-1")
    async with console(fleet) as stream:
        await stream.begin()
        await fleet.beat("w-1", version="2")
        await fleet.beat("w-1", version="3")

        assert [(await stream.next())["type"] for _ in range(2)] == ["agent.updated"] * 2


async def test_figures_of_a_stream_are_those_of_a_fresh_snapshot(fleet: Fleet) -> None:
    for n in range(6):
        await fleet.beat(f"w-{n}", status="busy", active_sessions=n)
    async with console(fleet) as stream:
        await stream.begin()
        await fleet.beat("w-0", status="offline")
        await fall_silent(fleet)
        for _ in range(6):
            _, lost = await stream.change()
        await fleet.beat("w-3", status="busy", active_sessions=7)
        _, back = await stream.change()

    assert figures(lost) == (6, 0, 6, 0, "critical")
    assert back == (await snapshot(fleet))["fleetHealth"]
    assert figures(back) == (6, 1, 5, 7, "degraded")


async def test_a_removal_replaces_the_snapshot(fleet: Fleet) -> None:
    await fleet.beat("w-1")
    await fleet.beat("w-2")
    async with console(fleet) as stream:
        await stream.begin()
        await fleet.store.remove("acme", ["w-1"], now=fleet.clock.now())
        whole = await stream.next()
        await fleet.beat("w-1", status="busy")
        anew, health = await stream.change()

    assert whole["type"] == "snapshot.replace"
    assert [agent["id"] for agent in whole["snapshot"]["agents"]] == ["w-2"]
    assert figures(whole["snapshot"]["fleetHealth"]) == (1, 0, 0, 0, "healthy")
    assert anew["id"] == "w-1"
    assert figures(health) == (2, 1, 0, 0, "healthy")


async def test_one_snapshot_stands_for_all_removals_before_it(fleet: Fleet) -> None:
    await fleet.key()
    await asyncio.gather(*(fleet.beat(f"w-{n}") for n in range(20)))
    async with console(fleet) as stream:
        await stream.begin()
        await fleet.store.forget(before=at(1), limit=100, now=fleet.clock.now())
        whole = await stream.next()
        await fleet.beat("w-3")
        appeared, health = await stream.change()

    assert whole["snapshot"]["agents"] == []
    assert appeared["id"] == "w-3"
    assert figures(health) == (1, 0, 0, 0, "healthy")


async def test_a_console_that_falls_behind_gets_the_fleet_anew(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "RING", 4)
    async with console(fleet) as stream:
        await stream.begin()
        await fleet.store.commit([beat(f"w-{n}") for n in range(5)], now=START, gone=NO_GAP)
        whole = await stream.begin()
        await fleet.beat("w-5")
        _, health = await stream.change()

    assert len(whole["agents"]) == 5
    assert figures(health) == (6, 0, 0, 0, "healthy")


async def test_another_tenants_workers_never_reach_a_console(fleet: Fleet) -> None:
    await fleet.beat("theirs", tenant="blue", status="busy")
    assert (await snapshot(fleet))["agents"] == []

    async with console(fleet) as stream, console(fleet, tenant="blue") as other:
        assert (await stream.begin())["fleetHealth"]["totalAgents"] == 0
        assert (await other.begin())["fleetHealth"]["totalAgents"] == 1
        await fleet.beat("theirs", tenant="blue")
        await fleet.store.remove("blue", ["theirs"], now=fleet.clock.now())
        await fleet.beat("mine")

        mine, health = await stream.change()
        theirs, _ = await other.change()
        assert (mine["id"], figures(health)[0]) == ("mine", 1)
        assert theirs["id"] == "theirs"
        assert (await other.next())["snapshot"]["agents"] == []


@pytest.mark.parametrize("path", ["/openorca/snapshot", "/openorca/events"])
async def test_the_console_needs_the_scope_read(fleet: Fleet, path: str) -> None:
    key = await fleet.key("acme", ["ingest", "admin"])

    # A stream that opens would never end.
    async with asyncio.timeout(10):
        refused = await fleet.http.get(path, headers={"Authorization": f"Bearer {key}"})
        unknown = await fleet.http.get(path)

    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")
    assert (unknown.status_code, unknown.json()["code"]) == (401, "unauthenticated")


async def test_a_revoked_keys_console_ends(fleet: Fleet) -> None:
    async with console(fleet) as stream:
        await stream.begin()
        await fleet.store.revoke_key("acme", (await fleet.key())[3:11], now=0)
        await fleet.app.state.parts.keyring.refresh()

        with pytest.raises(EOFError):
            await stream.next()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0m"),
        (59, "0m"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h 0m"),
        (11_520, "3h 12m"),
        (86_399, "23h 59m"),
        (86_400, "1d 0h"),
        (100 * 86_400 + 7200, "100d 2h"),
    ],
)
def test_a_length_of_time_has_two_units(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


@pytest.mark.parametrize(
    ("status", "sessions", "action", "level"),
    [
        ("idle", 0, "idle", 0),
        ("idle", 1, "idle, 1 session", 20),
        ("busy", 0, "busy", 20),
        ("busy", 4, "busy, 4 sessions", 80),
        ("busy", 6, "busy, 6 sessions", 100),
        ("offline", 6, "offline, left", 0),
    ],
)
def test_action_and_activity_say_what_a_worker_does(
    status: str, sessions: int, action: str, level: int
) -> None:
    row = project(worker(status=status, active_sessions=sessions), START)

    told = node(row, NOW)

    assert (told["currentAction"], told["activityLevel"]) == (action, level)


def test_a_machine_is_where_its_newest_worker_says() -> None:
    rows = [
        project(worker(agent_id="old", region="iad"), at(5)),
        project(worker(agent_id="new", region=None, last_seen=at(5)), at(5)),
    ]

    surroundings = Surroundings()
    for row in rows:
        surroundings.note(row)

    (only,) = surroundings.told(at(5))["machines"]

    assert (only["location"], only["isOnline"]) == ("", True)


def test_a_tally_counts_each_worker_once_as_it_is_now() -> None:
    tally = Tally(standings([worker(), worker(agent_id="other")]))
    tally.note(project(worker(status="busy"), START))
    assert figures(tally.health()) == (2, 1, 0, 0, "healthy")

    tally.drop("other")
    tally.drop("nobody")

    assert figures(tally.health()) == (1, 1, 0, 0, "healthy")
