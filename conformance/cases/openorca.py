"""R32: the fleet as the OpenOrca console hears it."""

from __future__ import annotations

import asyncio

from conformance import expect
from conformance.case import case
from conformance.expect import Breach
from conformance.streams import Json, Stream
from conformance.trial import Trial
from conformance.wire import address

NODE: Json = {
    "id": str, "name": str, "machineId": str, "machineName": str, "status": str, "domain": str,
    "integrations": list, "currentTaskId": type(None), "currentAction": str,
    "memoryUsage": (int, float), "uptime": str, "tasksCompleted": int, "collaboratingWith": list,
    "interventionRequired": bool, "activityLevel": (int, float), "loadedCores": list,
    "knowledgeContributions": int, "graphAccess": str, "activeSessions": int,
}  # fmt: skip
HEALTH = (
    "totalAgents", "activeAgents", "offlineAgents", "interventionsRequired", "tasksInProgress",
    "tasksCompletedToday", "swarmsActive",
)  # fmt: skip
SNAPSHOT = {
    "agents", "tasks", "actionLog", "interventions", "swarms", "machines", "fleetHealth", "meta",
}  # fmt: skip
TOLD_SECONDS = 30


@case(rule="R32", level="extended", needs="openorca")
async def the_runtime_says_what_it_supports_without_a_key(t: Trial) -> None:
    said = (await t.nobody.get("/openorca/runtime-info")).was(200).text.lower()

    for word in ("sse", "snapshots", "interventions"):
        expect.true(word in said, f"a word on {word}", said)


@case(rule="R32", level="extended", needs="openorca")
async def a_nodes_id_is_its_agent_id(t: Trial) -> None:
    group, ids = t.name("group"), t.names(2)
    for agent_id in ids:
        await t.a.beats(agent_id, agent_name=group)

    nodes = [each for each in await _nodes(t) if each["name"] == group or each["id"] in ids]

    expect.equal(sorted(each["id"] for each in nodes), sorted(ids), "ids of the nodes")


@case(rule="R32", level="extended", needs="openorca")
async def a_node_has_every_field_with_its_type(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, agent_name=name, status="busy", active_sessions=2, host="h")

    node = await _node(t, name)

    expect.equal(set(NODE) - set(node), set(), "missing fields")
    for field, kind in NODE.items():
        expect.true(isinstance(node[field], kind), f"{field} as {kind}", repr(node[field]))
    expect.fields(node, status="active", activeSessions=2)


@case(rule="R32", level="extended", needs="openorca")
async def a_snapshot_has_every_part_and_counts_the_fleet(t: Trial) -> None:
    await t.a.beats(t.name())

    snapshot = (await t.a.get("/openorca/snapshot")).was(200).json

    expect.equal(SNAPSHOT - set(snapshot), set(), "missing parts")
    health = snapshot["fleetHealth"]
    expect.equal([each for each in HEALTH if not isinstance(health.get(each), int)], [], "counts")
    expect.equal(health["totalAgents"], len(snapshot["agents"]), "totalAgents")
    for empty in ("tasks", "actionLog", "interventions", "swarms"):
        expect.equal(snapshot[empty], [], empty)


@case(rule="R32", level="extended", needs="openorca")
async def an_offline_worker_is_an_offline_node_with_no_sessions(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, agent_name=name, status="busy", active_sessions=3)
    await t.sleep(46.5)

    node = await _node(t, name)

    expect.fields(node, status="offline", activeSessions=0)


@case(rule="R32", level="extended", needs="openorca")
async def a_stream_begins_with_the_whole_fleet_in_an_unnamed_frame(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, agent_name=name)

    async with t.a.stream("/openorca/events") as stream:
        frame = await stream.next()

    expect.equal((frame.event, frame.id), (None, None), "the frame's name and id")
    expect.equal(frame.data["type"], "snapshot.replace", "its type")
    ids = [each["id"] for each in frame.data["snapshot"]["agents"]]
    expect.true(name in ids, f"a node for {name}", f"{len(ids)} others")


@case(rule="R32", level="extended", needs="openorca")
async def every_change_is_an_update_of_its_node(t: Trial) -> None:
    name = t.name()
    async with t.a.stream("/openorca/events") as stream:
        await stream.next()
        await t.a.beats(name, agent_name=name)
        first = await _until(stream, name, "idle")
        await t.a.beats(name, agent_name=name, status="busy", active_sessions=1)
        second = await _until(stream, name, "active")

    expect.fields(first, id=name, activeSessions=0)
    expect.fields(second, id=name, activeSessions=1)


@case(rule="R32", level="extended", needs="openorca")
async def going_offline_by_silence_is_told_too(t: Trial) -> None:
    name = t.name()
    async with t.a.stream("/openorca/events") as stream:
        await stream.next()
        await t.a.beats(name, agent_name=name, status="busy", active_sessions=1)
        await _until(stream, name, "active")
        await t.sleep(48)
        node = await _until(stream, name, "offline")

    expect.equal(node["activeSessions"], 0, "the node's sessions")


@case(rule="R32", level="extended", needs=("openorca", "removal"))
async def a_removal_sends_the_whole_fleet_anew(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    async with t.a.stream("/openorca/events") as stream:
        await stream.next()
        await t.a.send("DELETE", address(name))
        ids = {name}
        async with expect.within(30, "the fleet without the removed worker"):
            while name in ids:
                frame = await stream.next()
                if frame.data["type"] == "snapshot.replace":
                    ids = {each["id"] for each in frame.data["snapshot"]["agents"]}


async def _nodes(t: Trial) -> list[Json]:
    nodes: list[Json] = (await t.a.get("/openorca/snapshot")).was(200).json["agents"]
    return nodes


async def _node(t: Trial, name: str) -> Json:
    found = [each for each in await _nodes(t) if each["id"] == name]
    expect.equal(len(found), 1, f"nodes with the id {name}")
    return found[0]


async def _until(stream: Stream, name: str, status: str) -> Json:
    """That worker's node once it has this status, whatever else is told meanwhile."""
    try:
        async with asyncio.timeout(TOLD_SECONDS):
            return await _next(stream, name, status)
    except (Breach, TimeoutError):
        raise Breach(f"a frame in which {name} is {status}", "none") from None


async def _next(stream: Stream, name: str, status: str) -> Json:
    """In an update, or in a fleet sent anew."""
    while True:
        data = (await stream.next()).data
        fleet = data["snapshot"]["agents"] if data["type"] == "snapshot.replace" else []
        for node in [*fleet, data.get("agent") or {}]:
            if name in (node.get("id"), node.get("name")) and node["status"] == status:
                found: Json = node
                return found
