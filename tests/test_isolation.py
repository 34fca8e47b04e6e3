"""Nothing of one tenant ever reaches another: every route of the table, every kind of event."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from starlette.routing import Route

from collector.app import ROUTES
from tests.factories import body
from tests.fleet import Fleet

SECRET = "blue-secret"
STREAMS = ("/events", "/openorca/events")
# A removal that names nobody is refused: it is asked for the other tenant's.
QUERIES = {
    ("DELETE", "/v1/agents"): (f"?project={SECRET}", f"?project={SECRET}&dry_run=true"),
}
ASKED = [
    (method, route.path_format, query)
    for route in ROUTES
    if isinstance(route, Route) and route.path not in STREAMS
    for method in sorted(route.methods or ("GET", "DELETE"))
    if method != "HEAD"
    for query in QUERIES.get((method, route.path_format), ("",))
]


SENT = {
    "/v1/agents/heartbeat": body("mine", tenant_id="blue"),
    "/v1/keys": {"scopes": ["read"]},
    "/v1/keys/{key_id}/rotate": {},
}


async def live_and_die(fleet: Fleet) -> None:
    """Everything that can happen to a worker happens to the other tenant's."""
    named = {"tenant": "blue", "agent_name": SECRET, "project": SECRET, "host": SECRET}
    await fleet.beat(SECRET, started_at=200, **named)
    await fleet.beat(SECRET, started_at=200, status="busy", **named)
    await fleet.beat(SECRET, started_at=100, status="busy", **named)
    await fleet.beat(SECRET, status="offline", **named)
    await fleet.beat(SECRET, **named)
    for _ in range(10):
        fleet.clock.move(5)
        await fleet.app.state.parts.listener.listen()
    await fleet.app.state.parts.sweep.tick()
    await fleet.beat(SECRET, **named)
    await fleet.beat(f"{SECRET}-removed", **named)
    await fleet.store.remove("blue", [f"{SECRET}-removed"], now=fleet.clock.now())


async def kinds_of(fleet: Fleet, tenant: str) -> set[str]:
    return {event.type for event in await fleet.store.events(tenant, after=0, limit=100)}


@pytest.mark.parametrize(("method", "path", "query"), ASKED)
async def test_an_answer_holds_nothing_of_another_tenant(
    fleet: Fleet, method: str, path: str, query: str
) -> None:
    await live_and_die(fleet)
    before = await fleet.store.worker("blue", SECRET)

    theirs = (await fleet.key("blue"))[3:11]
    await fleet.sign_in("blue")
    (session,) = await fleet.store.sessions_of(theirs, now=fleet.clock.now())
    is_browsers = path == "/v1/sessions/current"

    answer = await fleet.http.request(
        method,
        path.format(agent_id=SECRET, key_id=theirs, session_id=session.id, path="app.js") + query,
        headers=await (fleet.sign_in("acme") if is_browsers else fleet.headers("acme")),
        json=SENT.get(path),
    )

    # What is refused for its form would prove nothing.
    assert answer.is_success or answer.status_code == 404
    assert SECRET not in answer.text
    assert session.id not in answer.text
    assert await fleet.store.sessions_of(theirs, now=fleet.clock.now()) == [session]
    assert await fleet.store.worker("blue", SECRET) == before
    assert all(key.revoked_at is None for key in await fleet.store.keys("blue"))
    assert await kinds_of(fleet, "blue") >= {
        *("online", "changed", "conflict", "left", "offline", "removed")
    }


@pytest.mark.parametrize("query", QUERIES["DELETE", "/v1/agents"])
async def test_a_removal_counts_nobody_of_another_tenant(fleet: Fleet, query: str) -> None:
    await live_and_die(fleet)
    await fleet.beat("mine", project=SECRET)

    asked = f"/v1/agents{query}"
    answer = await fleet.http.request("DELETE", asked, headers=await fleet.headers("acme"))

    assert (answer.json()["matched"], answer.json()["agent_ids"]) == (1, ["mine"])
    assert [worker["agent_id"] for worker in await fleet.roster(tenant="blue")] == [SECRET]


async def read_until(answer: httpx2.Response, wanted: str) -> str:
    seen = ""
    async with asyncio.timeout(20):
        async for text in answer.aiter_text():
            seen += text
            if wanted in seen:
                return seen
    raise AssertionError(f"{wanted} never came")


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_holds_nothing_of_another_tenant(fleet: Fleet, path: str) -> None:
    await live_and_die(fleet)
    headers = await fleet.headers("acme")
    async with fleet.http.stream("GET", path, headers=headers) as answer:
        await live_and_die(fleet)
        await fleet.beat("mine", tenant="acme")
        seen = await read_until(answer, "mine")

    assert SECRET not in seen


async def test_the_other_tenants_own_answers_do_hold_it(fleet: Fleet) -> None:
    """The control: what the others must not hold is there to be leaked."""
    await live_and_die(fleet)

    for path in ("/v1/agents", f"/v1/agents/{SECRET}", "/v1/events?last=50", "/openorca/snapshot"):
        answer = await fleet.http.get(path, headers=await fleet.headers("blue"))
        assert SECRET in answer.text
