"""`GET /v1/summary`, over HTTP."""

from __future__ import annotations

from typing import Any

from collector.values import SECOND
from tests.factories import at
from tests.fleet import Fleet


async def summary(fleet: Fleet, tenant: str = "acme") -> dict[str, Any]:
    answer = await fleet.get("/v1/summary", tenant=tenant)
    assert answer.status_code == 200, answer.text
    counts: dict[str, Any] = answer.json()
    return counts


async def test_workers_and_sessions_are_counted_in_all_and_by_name(fleet: Fleet) -> None:
    await fleet.beat("lost", status="busy", active_sessions=9)
    fleet.clock.move(46)
    await fleet.beat("a", status="busy", active_sessions=2)
    await fleet.beat("b", active_sessions=1)
    await fleet.beat("c", agent_name="billing", status="offline", active_sessions=9)

    assert await summary(fleet) == {
        "server_time": at(46) / SECOND,
        "workers": 4,
        "sessions": 3,
        "by_status": {"idle": 1, "busy": 1, "offline": 2},
        "by_agent_name": [
            {
                "agent_name": "billing",
                "workers": 1,
                "sessions": 0,
                "by_status": {"idle": 0, "busy": 0, "offline": 1},
            },
            {
                "agent_name": "reception",
                "workers": 3,
                "sessions": 3,
                "by_status": {"idle": 1, "busy": 1, "offline": 1},
            },
        ],
    }


async def test_a_summary_says_what_the_roster_says(fleet: Fleet) -> None:
    for n, status in enumerate(["idle", "busy", "offline", "busy", "idle"]):
        await fleet.beat(f"w{n}", status=status, agent_name=f"name-{n % 2}", active_sessions=n)
        fleet.clock.move(15)

    counted, roster = await summary(fleet), await fleet.roster()

    assert counted["workers"] == len(roster)
    assert counted["sessions"] == sum(worker["active_sessions"] for worker in roster)
    for status, count in counted["by_status"].items():
        assert count == sum(worker["status"] == status for worker in roster)


async def test_sessions_add_up_past_64_bits(fleet: Fleet) -> None:
    for n in range(3):
        await fleet.beat(f"w{n}", active_sessions=2**63 - 1)

    assert (await summary(fleet))["sessions"] == 3 * (2**63 - 1)


async def test_another_tenants_workers_are_not_counted(fleet: Fleet) -> None:
    await fleet.beat("w", tenant="acme")

    assert await summary(fleet, "blue") == {
        "server_time": at(0) / SECOND,
        "workers": 0,
        "sessions": 0,
        "by_status": {"idle": 0, "busy": 0, "offline": 0},
        "by_agent_name": [],
    }


async def test_a_parameter_is_refused_by_its_name(fleet: Fleet) -> None:
    answer = await fleet.get("/v1/summary", project="p")

    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["project"]
