"""`POST /v1/agents/heartbeat`: the six rules, over HTTP, each with the control that breaks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from freezegun import freeze_time

from collector.api import admission
from collector.app import create_app
from collector.clock import SystemClock
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import SECOND, Beat
from contract.worker import Heartbeat
from tests.factories import START, body
from tests.fleet import Fleet, TestClock, client_of, served

TENANTS = [f"tenant-{n:02}" for n in range(50)]


class GetThenInsert:
    """The control of rule 4: look, then write, in two transactions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        for each in beats:
            known = await self._store.worker(each.tenant_id, each.agent_id)
            await asyncio.sleep(0.01)  # the other writers of a busy collector
            renamed = each if known else each._replace(agent_id=f"{each.agent_id}#{id(each)}")
            await self._store.commit([renamed], now=now, gone=gone)
        return frozenset()


async def check_first_beats_make_one_row(fleets: Sequence[Fleet]) -> None:
    """Twenty first beats of one worker at once, through every collector of the store."""
    for each in fleets:
        await each.key()
    answers = await asyncio.gather(*(fleets[n % len(fleets)].beat() for n in range(20)))

    assert [answer.status_code for answer in answers] == [202] * 20
    assert [worker["agent_id"] for worker in await fleets[0].roster()] == ["worker-1"]


async def test_twenty_first_beats_at_once_make_one_row(store: Store, clock: TestClock) -> None:
    async with Fleet.over(store, clock) as one, Fleet.over(store, clock) as two:
        await check_first_beats_make_one_row([one, two])


async def test_control_get_then_insert_makes_more_rows(store: Store, clock: TestClock) -> None:
    control: Any = GetThenInsert(store)
    async with Fleet.over(control, clock) as one, Fleet.over(control, clock) as two:
        with pytest.raises(AssertionError):
            await check_first_beats_make_one_row([one, two])


async def check_each_beat_is_in_its_own_tenants_roster(fleet: Fleet) -> None:
    """A thousand beats of fifty tenants, each naming some other tenant in its body."""
    for tenant in TENANTS:
        await fleet.key(tenant)

    answers = await asyncio.gather(
        *(
            fleet.beat(f"{TENANTS[n % 50]}/{n}", tenant=TENANTS[n % 50], tenant_id=TENANTS[n % 49])
            for n in range(1000)
        )
    )

    assert {answer.status_code for answer in answers} == {202}
    for tenant in TENANTS:
        found = sorted(worker["agent_id"] for worker in await fleet.roster(tenant=tenant))
        assert found == sorted(f"{tenant}/{n}" for n in range(1000) if TENANTS[n % 50] == tenant)


async def test_a_thousand_beats_are_each_in_their_own_tenants_roster(fleet: Fleet) -> None:
    await check_each_beat_is_in_its_own_tenants_roster(fleet)


async def test_control_the_bodys_tenant_mixes_the_rosters(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = admission.beat_of
    monkeypatch.setattr(
        admission,
        "beat_of",
        lambda _tenant, sent, stamp: honest(json.loads(sent)["tenant_id"], sent, stamp),
    )

    with pytest.raises(AssertionError):
        await check_each_beat_is_in_its_own_tenants_roster(fleet)


async def check_the_clients_clock_means_nothing(fleet: Fleet, ts: Any) -> None:
    fleet.clock.move(100)
    answer = await fleet.beat(ts=ts, tenant_id="blue", status="busy")

    worker = await fleet.worker()
    assert answer.json()["server_time"] == worker["last_seen"] == fleet.clock.now() / SECOND
    assert (worker["status"], worker["age_seconds"]) == ("busy", 0)
    assert await fleet.roster(tenant="blue") == []


TIMES = [99999999999, 0, "yesterday", None, {"a": [1]}, True, -5, 1e300]


@pytest.mark.parametrize("ts", TIMES, ids=str)
async def test_the_clients_clock_never_drives_liveness(fleet: Fleet, ts: Any) -> None:
    await check_the_clients_clock_means_nothing(fleet, ts)


@pytest.mark.parametrize("ts", [99999999999, 0])
async def test_control_stamping_by_the_clients_clock_is_noticed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, ts: int
) -> None:
    honest = admission.beat_of
    monkeypatch.setattr(
        admission,
        "beat_of",
        lambda tenant, sent, _stamp: honest(tenant, sent, int(json.loads(sent)["ts"] * SECOND)),
    )

    with pytest.raises(AssertionError):
        await check_the_clients_clock_means_nothing(fleet, ts)


@pytest.mark.parametrize(("sent", "kept"), [(99999999999, 99999999999.0), (0, 0.0), ("x", None)])
async def test_ts_is_kept_as_information_if_it_is_a_number(
    fleet: Fleet, sent: Any, kept: float | None
) -> None:
    await fleet.beat(ts=sent)

    assert (await fleet.worker())["ts"] == kept


async def check_walk_across_the_ttl(fleet: Fleet, move: Callable[[float], object]) -> None:
    await fleet.beat(status="busy", active_sessions=3)

    seen = []
    for step in (44.9, 0.1, 0.1):
        move(step)
        worker = await fleet.worker()
        seen.append((worker["status"], worker["active_sessions"], worker["reason"]))

    assert seen == [("busy", 3, "alive"), ("busy", 3, "alive"), ("offline", 0, "lost")]


async def test_a_worker_is_alive_at_45_0_s_and_offline_at_45_1(fleet: Fleet) -> None:
    await check_walk_across_the_ttl(fleet, fleet.clock.move)


async def test_the_products_own_clock_walks_across_the_ttl_too(store: Store) -> None:
    with freeze_time("2026-11-16", real_asyncio=True) as frozen:
        clock: Any = SystemClock()
        clock.anchor = lambda _reading: None  # PostgreSQL's own clock is not frozen
        app = create_app(Settings(), store=store, clock=clock)
        async with served(app) as (server, url), client_of(url) as http:
            await check_walk_across_the_ttl(Fleet(app, server, clock, http), frozen.tick)


@pytest.mark.parametrize("ttl", [44, 46])
async def test_control_another_ttl_is_noticed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, ttl: int
) -> None:
    monkeypatch.setattr("collector.workers.TTL", ttl * SECOND)

    with pytest.raises(AssertionError):
        await check_walk_across_the_ttl(fleet, fleet.clock.move)


WRONG: dict[str, tuple[bytes | dict[str, Any], int, str | None]] = {
    "bad JSON": (b'{"agent_id":', 400, None),
    "empty": (b"", 400, None),
    "not UTF-8": (b'{"agent_id":"\xff"}', 400, None),
    "nested too deeply": (b"[" * 9000, 400, None),
    "UTF-16": (json.dumps(body()).encode("utf-16"), 400, None),
    "5,000 digits": (
        b'{"agent_id":"a","agent_name":"n","status":"idle","ts":' + b"9" * 5000 + b"}",
        400,
        None,
    ),
    "an array": (b"[]", 422, "body"),
    "null": (b"null", 422, "body"),
    "no agent_id": ({"agent_name": "n", "status": "idle"}, 422, "agent_id"),
    "no status": ({"agent_id": "a", "agent_name": "n"}, 422, "status"),
    "null status": (body(status=None), 422, "status"),
    "purple": (body(status="purple"), 422, "status"),
    "empty agent_id": (body(""), 422, "agent_id"),
    "an agent_id without an address": (body(".."), 422, "agent_id"),
    "a number for a name": (body(agent_name=5), 422, "agent_name"),
    "-4 sessions": (body(active_sessions=-4), 422, "active_sessions"),
    "2**63 sessions": (body(active_sessions=2**63), 422, "active_sessions"),
    "2**63 bytes": (body(memory_rss_bytes=2**63), 422, "memory_rss_bytes"),
    "half a session": (body(active_sessions=0.5), 422, "active_sessions"),
    "sessions as text": (body(active_sessions="3"), 422, "active_sessions"),
    "true sessions": (body(active_sessions=True), 422, "active_sessions"),
    "NaN": (b'{"agent_id":"a","agent_name":"n","status":"idle","cpu_pct":NaN}', 400, None),
    "NaN for ts": (b'{"agent_id":"a","agent_name":"n","status":"idle","ts":NaN}', 400, None),
    "Infinity": (b'{"agent_id":"a","agent_name":"n","status":"idle","x":-Infinity}', 400, None),
    "too large a float": (
        b'{"agent_id":"a","agent_name":"n","status":"idle","cpu_pct":1e999}',
        422,
        "cpu_pct",
    ),
    "NUL": (body("a\0b"), 422, "agent_id"),
    "a control character": (body(host="a\x1b[31m"), 422, "host"),
    "a lone surrogate": (
        b'{"agent_id":"\\ud800","agent_name":"n","status":"idle"}',
        422,
        "agent_id",
    ),
    "257 characters": (body("x" * 257), 422, "agent_id"),
    "a started_at as text": (body(started_at="now"), 422, "started_at"),
    "16 KiB and a byte": (b" " * (16 * 1024 + 1), 413, None),
    "3 MB": (b" " * 3_000_000, 413, None),
}


async def check_refused_and_nothing_stored(fleet: Fleet, name: str) -> None:
    """The wrong beat among a neighbour's, in the same batches."""
    sent, status, field = WRONG[name]
    await fleet.key("blue")

    refused, *neighbours = await asyncio.gather(
        fleet.post(sent), *(fleet.beat(f"w{n}", tenant="blue") for n in range(20))
    )

    assert refused.status_code == status, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert [error["field"] for error in problem["errors"]] == ([field] if field else [])
    assert await fleet.roster() == []
    assert {answer.status_code for answer in neighbours} == {202}
    assert len(await fleet.roster(tenant="blue")) == 20


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_body_is_refused_by_its_field_and_costs_nobody_else(
    fleet: Fleet, name: str
) -> None:
    await check_refused_and_nothing_stored(fleet, name)


@pytest.mark.parametrize("name", ["purple", "-4 sessions", "2**63 sessions"])
async def test_control_without_the_models_checks_the_same_is_noticed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def unchecked(_model: type[Heartbeat], sent: bytes) -> Heartbeat:
        return Heartbeat.model_construct(**json.loads(sent))

    monkeypatch.setattr(admission, "parse", unchecked)

    with pytest.raises(AssertionError):
        await check_refused_and_nothing_stored(fleet, name)


async def test_unknown_fields_are_ignored(fleet: Fleet) -> None:
    answer = await fleet.beat(nonsense={"deep": [1, 2]}, last_seen=5, first_seen=6, conflict=True)

    assert answer.status_code == 202
    worker = await fleet.worker()
    assert (worker["last_seen"], worker["conflict"]) == (START / SECOND, False)
    assert "nonsense" not in worker


async def test_the_answer_says_when_and_when_next(fleet: Fleet) -> None:
    answer = await fleet.beat()

    assert answer.status_code == 202
    assert answer.json() == {
        "status": "accepted",
        "server_time": START / SECOND,
        "next_beat_seconds": 15,
    }


async def test_a_whole_number_may_be_written_as_a_float(fleet: Fleet) -> None:
    await fleet.beat(active_sessions=3.0, memory_rss_bytes=758.0, status="busy")

    worker = await fleet.worker()
    assert (worker["active_sessions"], worker["memory_rss_bytes"]) == (3, 758)


async def test_limits_are_reached_and_not_passed(fleet: Fleet) -> None:
    padding = "p" * (16 * 1024 - 700)
    answer = await fleet.beat("é" * 256, active_sessions=2**63 - 1, status="busy", padding=padding)

    assert answer.status_code == 202
    worker = await fleet.worker()
    assert (worker["agent_id"], worker["active_sessions"]) == ("é" * 256, 2**63 - 1)


async def test_a_leave_is_offline_at_once_and_stays_left(fleet: Fleet) -> None:
    await fleet.beat(status="busy", active_sessions=2)
    await fleet.beat(status="offline", active_sessions=2)

    for seconds in (0, 46):
        fleet.clock.move(seconds)
        worker = await fleet.worker()
        assert (worker["status"], worker["reason"]) == ("offline", "left")
        assert worker["active_sessions"] == 0

    await fleet.beat()
    assert (await fleet.worker())["status"] == "idle"


async def test_the_stamp_is_the_arrival_not_the_commit(fleet: Fleet) -> None:
    class SlowCommit:
        async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
            fleet.clock.move(30)
            return await fleet.store.commit(beats, now=now, gone=gone)

    intake: Any = fleet.app.state.parts.intake
    intake._store = SlowCommit()

    answer = await fleet.beat()

    assert answer.json()["server_time"] == START / SECOND
    assert (await fleet.worker())["age_seconds"] == 30
