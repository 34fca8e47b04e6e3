"""What the log says of a refusal: why, whose, from where, and for a beat which worker."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from collector import keys, logs
from collector.api.admission import agent_id_in
from collector.errors import StoreUnavailable
from collector.store.protocol import Store
from collector.values import SECOND
from contract.vocabulary import MAX_BODY_BYTES, MAX_HEADERS
from tests.factories import body
from tests.fleet import Fleet, TestClock
from tests.test_wire import Held, line, request

pytestmark = pytest.mark.anyio

HEARTBEAT = "/v1/agents/heartbeat"
WHO = ("tenant", "key_id", "peer", "code", "fields", "agent_id")


@pytest.fixture(params=["on", "off"], ids=["fast path", "app"])
async def door(
    store: Store, clock: TestClock, request: pytest.FixtureRequest
) -> AsyncIterator[Fleet]:
    """A collector that takes beats in the one way or the other, and knows the tenant's key."""
    async with Fleet.over(store, clock, fast_path=request.param, request_seconds=1) as running:
        await running.key()
        # The key's own making is a change; what is known after it stays known.
        await running.app.state.parts.keyring.refresh()
        await running.beat("first")
        yield running


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


class Told:
    """The log as programs read it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        caplog.handler.setFormatter(logs.JsonFormatter())
        self._caplog = caplog

    def refusal(self) -> dict[str, Any]:
        """The newest line with a code."""
        lines = [json.loads(each) for each in self._caplog.text.splitlines()]
        refusals: list[dict[str, Any]] = [each for each in lines if "code" in each]
        return refusals[-1]

    def who(self) -> tuple[Any, ...]:
        refusal = self.refusal()
        return tuple(refusal.get(name) for name in WHO)


async def own_id(door: Fleet) -> str:
    return (await door.key())[3:11]


async def test_a_wrong_field_is_told_with_its_name_and_its_worker(door: Fleet, told: Told) -> None:
    await door.beat("w-1", status="purple", active_sessions=-1)

    fields = ["status", "active_sessions"]
    assert told.who() == (
        "acme", await own_id(door), "127.0.0.1", "invalid_field", fields, "w-1"
    )  # fmt: skip
    assert "purple" not in json.dumps(told.refusal())


async def test_a_beat_that_is_not_committed_is_told_with_its_worker(
    door: Fleet, told: Told
) -> None:
    Held(door, StoreUnavailable("gone")).let_go.set()

    async with line(door) as unlucky:
        unlucky.send(await request(door, "unlucky", "X-Request-ID: mine"))
        await unlucky.answer()

    refusal = told.refusal()
    assert told.who() == (
        "acme", await own_id(door), "127.0.0.1", "store_unavailable", None, "unlucky"
    )  # fmt: skip
    assert (refusal["request_id"], refusal["message"]) == ("mine", f"POST {HEARTBEAT} 503")


async def test_beats_that_fail_together_are_each_told_with_their_own_worker(
    door: Fleet, caplog: pytest.LogCaptureFixture, told: Told
) -> None:
    await door.beat("theirs", tenant="blue")
    held = Held(door, StoreUnavailable("gone"))
    async with line(door) as one, line(door) as other:
        mine = await request(door, "mine")
        blue = mine.replace((await door.key()).encode(), (await door.key("blue")).encode())
        one.send(mine)
        other.send(blue.replace(b'"mine"', b'"his1"'))
        await held.begun.wait()
        held.let_go.set()
        await one.answer()
        await other.answer()

    lines = [json.loads(each) for each in caplog.text.splitlines()]
    pairs = {(each["tenant"], each.get("agent_id")) for each in lines if "code" in each}
    assert pairs == {("acme", "mine"), ("blue", "his1")}
    assert told.refusal()["code"] == "store_unavailable"


async def test_a_body_over_the_limit_is_told_with_the_worker_that_its_beginning_names(
    door: Fleet, told: Told
) -> None:
    await door.post({**body("wordy"), "more": "x" * MAX_BODY_BYTES})

    assert told.who()[3:] == ("too_large", None, "wordy")


@pytest.mark.parametrize("end", ["revoked", "expired"])
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_key_that_has_ended_is_told_with_its_tenant(
    door: Fleet, told: Told, end: str, is_known: bool
) -> None:
    now = door.clock.now()
    until = now + 60 * SECOND if end == "expired" else None
    own, plaintext = await keys.create(door.store, "acme", ["ingest"], now=now, expires_at=until)
    headers = {"Authorization": f"Bearer {plaintext}"}
    if is_known:
        await door.http.post(HEARTBEAT, headers=headers, json=body("w-1"))

    if end == "revoked":
        await door.store.revoke_key("acme", own.id, now=now)
    else:
        door.clock.move(60)
    await door.app.state.parts.keyring.refresh()
    for _ in range(2):
        refused = await door.http.post(HEARTBEAT, headers=headers, json=body("w-1"))
        assert refused.status_code == 401
        # The key is checked before the body is read: who has no key gets no name into the log.
        assert told.who() == ("acme", own.id, "127.0.0.1", "unauthenticated", None, None)


@pytest.mark.parametrize("end", ["active", "revoked"])
async def test_a_wrong_secret_says_nothing_of_a_tenant(door: Fleet, told: Told, end: str) -> None:
    now = door.clock.now()
    own, plaintext = await keys.create(door.store, "acme", ["ingest"], now=now)
    if end == "revoked":
        await door.store.revoke_key("acme", own.id, now=now)
        await door.app.state.parts.keyring.refresh()
    wrong = plaintext[:-1] + ("A" if plaintext[-1] != "A" else "B")

    await door.http.post(HEARTBEAT, headers={"Authorization": f"Bearer {wrong}"}, json=body("w"))

    assert told.who() == (None, None, "127.0.0.1", "unauthenticated", None, None)
    assert own.id not in json.dumps(told.refusal())


async def test_whose_an_ended_key_was_costs_one_digest(door: Fleet) -> None:
    now = door.clock.now()
    own, plaintext = await keys.create(door.store, "acme", ["ingest"], now=now)
    await door.store.revoke_key("acme", own.id, now=now)
    runs = door.app.state.parts.metrics.argon2_runs
    before = runs._value.get()

    for _ in range(5):
        door.clock.move(11)
        headers = {"Authorization": f"Bearer {plaintext}"}
        await door.http.post(HEARTBEAT, headers=headers, json=body("w"))

    assert runs._value.get() - before == 1


async def test_a_session_that_is_over_is_told_with_its_key(door: Fleet, told: Told) -> None:
    browser = await door.sign_in()
    await door.http.get("/v1/agents", headers=browser)

    door.clock.move(8 * 86_400)
    await door.http.get("/v1/agents", headers=browser)

    assert told.who()[:4] == ("acme", await own_id(door), "127.0.0.1", "unauthenticated")


async def test_a_page_of_another_origin_is_told_with_the_key_that_it_used(
    door: Fleet, told: Told
) -> None:
    browser = {**await door.sign_in(), "Origin": "https://evil.example"}

    await door.http.delete("/v1/agents/w-1", headers=browser)

    assert told.who()[:4] == ("acme", await own_id(door), "127.0.0.1", "foreign_origin")


async def test_a_wrong_parameter_is_told_by_its_name_and_a_strange_one_is_not(
    door: Fleet, told: Told
) -> None:
    await door.get("/v1/agents", colour="red")
    assert told.refusal()["fields"] == ["colour"]

    await door.http.get("/v1/agents?a%0Ab%20c=1", headers=await door.headers())
    assert told.refusal()["fields"] == ["(another)"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"x: y\r\n" * (MAX_HEADERS + 1) + b"\r\n", "head_too_large"),
        (b"x: y\r\n", "request_timeout"),
        (b"no header\r\n\r\n", "malformed_request"),
    ],
)
async def test_what_a_connection_refuses_by_itself_is_told_like_all_else(
    door: Fleet, told: Told, sent: bytes, code: str
) -> None:
    async with line(door) as caller:
        caller.send(b"GET /healthz HTTP/1.1\r\n", sent)
        _, headers, _ = await caller.answer()

    assert told.who() == (None, None, "127.0.0.1", code, None, None)
    assert told.refusal()["request_id"] == headers["x-request-id"]


async def test_a_beat_that_never_gets_whole_is_told_with_its_key(door: Fleet, told: Told) -> None:
    async with line(door) as slow:
        slow.send((await request(door, "half"))[:-3])
        await slow.answer()

    assert told.who()[:4] == ("acme", await own_id(door), "127.0.0.1", "request_timeout")


async def test_no_agent_id_forges_a_line(door: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    forged = '\u2028\u202e"} INFO [-] all is well'
    for formatter in (logs.Formatter(), logs.JsonFormatter()):
        caplog.clear()
        caplog.set_level(logging.INFO, logs.REQUESTS)
        caplog.handler.setFormatter(formatter)

        await door.beat(forged, status="purple")

        (told,) = caplog.text.splitlines()
        assert "\\u2028\\u202e" in told
        assert "acme" in told


async def test_of_a_long_path_the_beginning_is_told_and_no_key_that_the_cut_goes_through(
    door: Fleet, told: Told
) -> None:
    await door.http.get(f"/{'a' * 600}")
    assert told.refusal()["message"] == f"GET /{'a' * 511}… 404"

    for start in (480, 500, 511):
        await door.http.get(f"/{'a' * (start - 2)}/{'A' * 32}")
        assert told.refusal()["message"] == "GET (a path with a key in it) 404"


async def test_people_read_the_same_at_the_end_of_the_line(
    door: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logs.REQUESTS)
    caplog.handler.setFormatter(logs.Formatter())

    await door.beat("front desk", status="purple")

    _, _, said = caplog.text.rstrip().partition(f"POST {HEARTBEAT} 422 ")
    assert said == 'code=invalid_field fields=status peer=127.0.0.1 agent_id="front desk"'


async def test_a_flood_of_refusals_is_summed_up_whoever_they_are_of(
    door: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    flood = logs.Flood()
    caplog.set_level(logging.INFO, logs.REQUESTS)
    caplog.handler.addFilter(flood)

    for n in range(25):
        await door.beat(f"w-{n}", status="purple")
    flood.sum_up()

    caplog.handler.removeFilter(flood)
    lines = [each.getMessage() for each in caplog.records]
    assert [each.startswith("15 more requests were answered 422") for each in lines] == [
        *[False] * 10, True
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "agent_id"),
    [
        (b'{"agent_id": "w-1", "status": tru', "w-1"),
        (b'{"agent_id": "w-1"', "w-1"),
        (b'{"agent_id": "w-', None),
        (b'{"agent_id": 7}', None),
        (b'{"agent_id": "a\\nb"}', None),
        (b'{"agent_id": "%s"}' % (b"x" * 257), None),
        (b'{"agent_id": ".."}', None),
        (b'{"agent_id": "\\ud800"}', None),
        (b'["agent_id"]', None),
        (b"", None),
        (b"[" * 9000, None),
        (b"\xff", None),
    ],
)
def test_an_agent_id_is_told_where_the_body_can_be_read_that_far_and_it_is_one(
    sent: bytes, agent_id: str | None
) -> None:
    assert agent_id_in(sent) == agent_id


async def test_a_refusal_is_counted_by_its_code(fleet: Fleet) -> None:
    await fleet.http.get("/v1/agents")

    told = (await fleet.http.get("/metrics")).text

    assert 'collector_refusals_total{code="unauthenticated"} 1.0' in told
