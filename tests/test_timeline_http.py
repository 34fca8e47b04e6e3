"""A worker's timeline, and the collectors' gaps, over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from collector.store.protocol import Store
from collector.values import SECOND
from contract.worker import Roster, Worker
from tests.factories import at
from tests.fleet import Fleet, TestClock

DAY_SECONDS = 86_400


def epoch(seconds: float) -> float:
    """The wire's time, that many seconds after the tests' start."""
    return at(seconds) / SECOND


def windows(online: float, counted: float, gap: float = 0) -> dict[str, Any]:
    """The same in both windows, for what is younger than either."""
    one = {
        "online_seconds": online,
        "counted_seconds": counted,
        "gap_seconds": gap,
        "ratio": online / counted if counted else None,
    }
    return {"24h": one, "7d": one}


async def timeline(
    fleet: Fleet, agent_id: str = "worker-1", *, tenant: str = "acme", **query: Any
) -> dict[str, Any]:
    path = f"/v1/agents/{quote(agent_id, safe='')}/timeline"
    answer = await fleet.get(path, tenant=tenant, **query)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def listen_for(fleet: Fleet, seconds: int) -> None:
    """Time in which the collector listens and sweeps."""
    for _ in range(seconds // 5):
        fleet.clock.move(5)
        await fleet.app.state.parts.listener.listen()
        await fleet.app.state.parts.sweep.tick()


async def pause_for(fleet: Fleet, seconds: int) -> None:
    """Time in which no collector listens."""
    fleet.clock.move(seconds)
    await fleet.app.state.parts.listener.listen()


async def test_a_timeline_tells_spells_transitions_and_uptime(fleet: Fleet) -> None:
    await fleet.beat()
    await listen_for(fleet, 10)
    await fleet.beat(status="busy")
    await listen_for(fleet, 10)
    await fleet.beat(status="offline")
    await listen_for(fleet, 20)
    await fleet.beat()
    await listen_for(fleet, 10)

    told = await timeline(fleet)

    assert told["agent_id"] == "worker-1"
    assert told["server_time"] == epoch(50)
    assert told["since"] == epoch(50 - 7 * DAY_SECONDS)
    assert told["spells"] == [
        {"online_from": epoch(0), "online_until": epoch(20), "reason": "left"},
        {"online_from": epoch(40), "online_until": None, "reason": None},
    ]
    assert [(each["type"], each["at"]) for each in told["transitions"]] == [
        ("worker.online", epoch(0)),
        ("worker.changed", epoch(10)),
        ("worker.left", epoch(20)),
        ("worker.online", epoch(40)),
    ]
    assert told["gaps"] == []
    assert told["uptime"] == windows(30, 50)


async def test_a_transition_is_told_as_the_feed_tells_it(fleet: Fleet) -> None:
    cursor = (await fleet.get("/v1/events")).json()["cursor"]
    await fleet.beat()
    await listen_for(fleet, 60)

    transitions = (await timeline(fleet))["transitions"]

    followed = (await fleet.get("/v1/events", after=cursor, wait=10)).json()["events"]
    for event in followed:
        del event["cursor"]
    assert transitions == followed
    assert [each["reason"] for each in transitions] == [None, "lost"]
    assert all(Worker.model_validate(t["worker"], extra="forbid") for t in transitions)


async def test_a_worker_that_just_came_has_nothing_to_count(fleet: Fleet) -> None:
    await fleet.beat()

    assert (await timeline(fleet))["uptime"] == windows(0, 0)


async def test_an_unannounced_silence_ends_the_spell_at_the_ttl(fleet: Fleet) -> None:
    await fleet.beat()
    fleet.clock.move(45)
    assert (await timeline(fleet))["spells"][0]["online_until"] is None

    fleet.clock.move(15)
    told = await timeline(fleet)

    assert told["spells"] == [
        {"online_from": epoch(0), "online_until": epoch(45), "reason": "lost"}
    ]
    assert [each["type"] for each in told["transitions"]] == ["worker.online"]
    assert told["uptime"] == windows(45, 60)


async def test_an_announced_silence_tells_the_same(fleet: Fleet) -> None:
    await fleet.beat()
    await listen_for(fleet, 60)

    told = await timeline(fleet)

    assert told["spells"] == [
        {"online_from": epoch(0), "online_until": epoch(45), "reason": "lost"}
    ]
    assert told["uptime"] == windows(45, 60)


async def test_the_collectors_gaps_are_left_out_of_the_count(fleet: Fleet) -> None:
    await fleet.beat()
    await pause_for(fleet, 100)
    await fleet.beat()
    await listen_for(fleet, 20)

    told = await timeline(fleet)

    assert told["gaps"] == [{"began_at": epoch(0), "ended_at": epoch(100), "seconds": 100}]
    assert told["spells"] == [{"online_from": epoch(0), "online_until": None, "reason": None}]
    assert told["uptime"] == windows(20, 20, gap=100)
    assert told["transitions"][-1]["reason"] == "collector_gap"


async def test_each_window_counts_only_its_own_time(fleet: Fleet) -> None:
    await fleet.beat()
    fleet.clock.move(10)
    await fleet.beat(status="offline")
    await fleet.store.prune_gaps(before=0)
    fleet.clock.move(2 * DAY_SECONDS - 10)

    uptime = (await timeline(fleet))["uptime"]

    assert uptime["24h"]["online_seconds"] == 0
    assert uptime["24h"]["counted_seconds"] == DAY_SECONDS
    assert uptime["7d"]["online_seconds"] == 10
    assert uptime["7d"]["counted_seconds"] == 2 * DAY_SECONDS


async def test_since_bounds_what_is_told_and_not_the_uptime(fleet: Fleet) -> None:
    await fleet.beat()
    await listen_for(fleet, 10)
    await fleet.beat(status="offline")
    await pause_for(fleet, 20)
    await fleet.beat()
    await listen_for(fleet, 10)

    told = await timeline(fleet, since=epoch(30))

    assert [spell["online_from"] for spell in told["spells"]] == [epoch(30)]
    assert [each["at"] for each in told["transitions"]] == [epoch(30)]
    assert told["gaps"] == []
    assert told["uptime"] == windows(20, 20, gap=20)


async def test_what_was_before_a_removal_is_told_but_not_counted(fleet: Fleet) -> None:
    await fleet.beat()
    await listen_for(fleet, 10)
    await fleet.http.delete("/v1/agents/worker-1", headers=await fleet.headers())
    await listen_for(fleet, 10)
    await fleet.beat()
    await listen_for(fleet, 10)

    told = await timeline(fleet)

    assert [spell["reason"] for spell in told["spells"]] == ["removed", None]
    assert told["transitions"][1]["type"] == "worker.removed"
    assert told["uptime"] == windows(10, 10)


async def test_time_whose_spells_are_pruned_is_not_counted(store: Store, clock: TestClock) -> None:
    async with Fleet.over(store, clock, spells_keep_days=1) as fleet:
        await fleet.beat()
        clock.move(3 * DAY_SECONDS)

        uptime = (await timeline(fleet))["uptime"]

    assert uptime["7d"] == uptime["24h"]
    assert uptime["7d"]["counted_seconds"] == DAY_SECONDS


@pytest.mark.parametrize("agent_id", ["a/b", "%", "漢", "a%2Fb", "heartbeat", "what?", "timeline"])
async def test_any_agent_id_has_a_timeline(fleet: Fleet, agent_id: str) -> None:
    await fleet.beat(agent_id)

    told = await timeline(fleet, agent_id)

    assert told["agent_id"] == agent_id
    assert told["transitions"][0]["worker"]["agent_id"] == agent_id


@pytest.mark.parametrize("path", ["unknown", "%00", "%ff", "%"])
async def test_an_unknown_worker_has_no_timeline(fleet: Fleet, path: str) -> None:
    await fleet.beat("known")

    answer = await fleet.get(f"/v1/agents/{path}/timeline")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_another_tenants_worker_has_no_timeline(fleet: Fleet) -> None:
    await fleet.beat("w", tenant="acme")

    assert (await fleet.get("/v1/agents/w/timeline", tenant="blue")).status_code == 404


async def test_two_workers_with_one_name_in_two_tenants_have_their_own_timelines(
    fleet: Fleet,
) -> None:
    await fleet.beat("w", tenant="acme")
    await listen_for(fleet, 10)
    await fleet.beat("w", tenant="blue", status="busy")

    told = await timeline(fleet, "w", tenant="blue")

    assert [spell["online_from"] for spell in told["spells"]] == [epoch(10)]
    assert [each["worker"]["status"] for each in told["transitions"]] == ["busy"]


async def test_gaps_are_told_from_a_day_ago_or_since_the_time_asked_for(fleet: Fleet) -> None:
    await pause_for(fleet, 100)
    await listen_for(fleet, 10)
    await pause_for(fleet, 2 * DAY_SECONDS)
    old = {"began_at": epoch(0), "ended_at": epoch(100), "seconds": 100}
    new = {
        "began_at": epoch(110),
        "ended_at": epoch(110 + 2 * DAY_SECONDS),
        "seconds": 2 * DAY_SECONDS,
    }

    assert (await fleet.get("/v1/gaps")).json() == {
        "gaps": [new],
        "server_time": epoch(110 + 2 * DAY_SECONDS),
    }
    assert (await fleet.get("/v1/gaps", since=f"{epoch(50)}")).json()["gaps"] == [old, new]
    assert (await fleet.get("/v1/gaps", since=0, tenant="blue")).json()["gaps"] == [old, new]


async def test_the_roster_tells_of_a_gap_for_a_minute_after_it(fleet: Fleet) -> None:
    await fleet.beat()
    assert (await fleet.get("/v1/agents")).json()["recent_gap"] is None
    await pause_for(fleet, 100)

    told = (await fleet.get("/v1/agents")).json()
    assert told["recent_gap"] == {"began_at": epoch(0), "ended_at": epoch(100)}
    assert Roster.model_validate(told, extra="forbid", strict=True).recent_gap
    fleet.clock.move(60)
    assert (await fleet.get("/v1/agents", limit=5)).json()["recent_gap"] is not None
    fleet.clock.move(0.000001)
    assert (await fleet.get("/v1/agents")).json()["recent_gap"] is None


async def test_of_several_recent_gaps_the_roster_tells_the_newest(fleet: Fleet) -> None:
    await pause_for(fleet, 20)
    await pause_for(fleet, 20)

    told = (await fleet.get("/v1/agents")).json()

    assert told["recent_gap"] == {"began_at": epoch(20), "ended_at": epoch(40)}


@pytest.mark.parametrize("path", ["/v1/gaps", "/v1/agents/worker-1/timeline"])
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "yesterday"}, "since"),
        ({"since": ""}, "since"),
        ({"since": "-1"}, "since"),
        ({"since": "nan"}, "since"),
        ({"since": "253402300800"}, "since"),
        ({"since": "9" * 400}, "since"),
        ({"since": ["1", "2"]}, "since"),
        ({"until": "1"}, "until"),
    ],
    ids=lambda given: str(given)[:30],
)
async def test_a_wrong_query_is_refused_by_its_parameter(
    fleet: Fleet, path: str, query: dict[str, Any], field: str
) -> None:
    await fleet.beat()

    answer = await fleet.get(path, **query)

    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
