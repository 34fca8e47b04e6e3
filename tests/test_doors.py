"""What is the same at every door: keys, scopes, problem documents, request ids, health."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from starlette.routing import Route

from collector import keys
from collector.api.problems import STATUSES
from collector.app import ROUTES
from collector.errors import CollectorError, StoreUnavailable
from collector.logs import Formatter
from collector.values import SECOND
from contract.problem import Problem
from contract.vocabulary import SCOPES, Scope
from tests.factories import body
from tests.fleet import Fleet

CONTRACT = (Path(__file__).parents[1] / "contract" / "CONTRACT.md").read_text()

_ROW = re.compile(r"^\| `(ingest|read|admin)` \| (.+) \|$|^\| no key \| (.+) \|$", re.MULTILINE)
_DOOR = re.compile(r"`([A-Z]+) ([^`]+)`")


def _doors(is_open: bool) -> list[tuple[str, str, Scope]]:
    """Method, path and scope of every route, as the contract's own table has them."""
    return [
        (method, path, cast(Scope, scope))
        for scope, guarded, unguarded in _ROW.findall(CONTRACT)
        if bool(unguarded) == is_open
        for method, path in _DOOR.findall(guarded or unguarded)
    ]


GUARDED, OPEN = _doors(is_open=False), _doors(is_open=True)
STREAMS = {"/events", "/openorca/events"}
LIFE_SECONDS = 60


def check_problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert Problem.model_validate(document, extra="forbid", strict=True).status == status
    assert document["code"] == code
    return document


async def call(fleet: Fleet, method: str, path: str, key: str | None) -> httpx2.Response:
    """Knock with this key; of a stream that opens, read what comes first."""
    _, own = await keys.create(fleet.store, "acme", ["admin"], now=fleet.clock.now())
    headers, session_id = await present(fleet, path, key)
    address = path.format(agent_id="w", key_id=own[3:11], session_id=session_id)
    if (method, path) == ("DELETE", "/v1/agents"):
        address += "?project=nobodys"
    knock = fleet.http.stream(method, address, headers=headers, json=SENT.get(path))
    async with asyncio.timeout(20), knock as answer:
        if path in STREAMS and answer.is_success:
            assert await anext(answer.aiter_bytes())
        else:
            await answer.aread()
        return answer


async def present(fleet: Fleet, path: str, key: str | None) -> tuple[dict[str, str], str]:
    """The key, or where only a cookie opens that of a session of it; and a session's id."""
    if key is None:
        return {}, "UNKNOWN23456"
    headers = {"Authorization": f"Bearer {key}"}
    signed_in = await fleet.http.post("/v1/sessions", headers=headers)
    if not signed_in.is_success:
        return headers, "UNKNOWN23456"
    session_id: str = signed_in.json()["id"]
    if path != "/v1/sessions/current":
        return headers, session_id
    cookie, _, _ = signed_in.headers["set-cookie"].partition(";")
    return {"Cookie": cookie, "Origin": fleet.url}, session_id


SENT: dict[str, Any] = {
    "/v1/agents/heartbeat": body("w"),
    "/v1/keys": {"scopes": ["admin"]},
    "/v1/keys/{key_id}/rotate": {},
}


def test_every_route_is_in_the_contracts_table_of_scopes() -> None:
    served = {
        (method, route.path_format)
        for route in ROUTES
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }

    assert served == {door[:2] for door in (*GUARDED, *OPEN)}


@pytest.mark.parametrize(("method", "path", "scope"), GUARDED)
async def test_a_door_opens_to_its_scope_alone(
    fleet: Fleet, method: str, path: str, scope: Scope
) -> None:
    await fleet.beat("w")
    others = [other for other in SCOPES if other != scope]

    opened = await call(fleet, method, path, await fleet.key(scopes=[scope]))
    refused = await call(fleet, method, path, await fleet.key(scopes=others))

    assert opened.is_success
    document = check_problem(refused, 403, "missing_scope")
    assert scope in document["detail"]


@pytest.mark.parametrize(("method", "path", "scope"), GUARDED)
@pytest.mark.parametrize("key", [None, "vk_wrong", "vk_" + "A" * 32])
async def test_a_door_stays_shut_without_a_right_key(
    fleet: Fleet, method: str, path: str, scope: Scope, key: str | None
) -> None:
    answer = await call(fleet, method, path, key)

    check_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert scope


@pytest.mark.parametrize(("method", "path", "scope"), GUARDED)
@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_a_door_that_was_open_is_shut_to_a_key_whose_time_is_over(
    fleet: Fleet, method: str, path: str, scope: Scope, end: str
) -> None:
    await fleet.beat("w")
    now = fleet.clock.now()
    until = now + LIFE_SECONDS * SECOND if end == "expired" else None
    key, plaintext = await keys.create(fleet.store, "acme", [scope], now=now, expires_at=until)
    before = await call(fleet, method, path, plaintext)

    if end == "revoked":
        await fleet.store.revoke_key("acme", key.id, now=now)
    else:
        fleet.clock.move(LIFE_SECONDS)
    await fleet.app.state.parts.keyring.refresh()
    after = await call(fleet, method, path, plaintext)

    # That it was known is what makes it hard: its digest is not looked at again.
    assert before.is_success
    check_problem(after, 401, "unauthenticated")


@pytest.mark.parametrize("header", ["Basic dXNlcjpwYXNz", "Bearer", "vk_" + "A" * 32])
async def test_anything_but_a_bearer_is_no_key(fleet: Fleet, header: str) -> None:
    answer = await fleet.http.get("/v1/agents", headers={"Authorization": header})

    check_problem(answer, 401, "unauthenticated")


async def test_the_scheme_may_be_written_in_any_case(fleet: Fleet) -> None:
    headers = {"Authorization": f"bEARER {await fleet.key()}"}

    assert (await fleet.http.get("/v1/agents", headers=headers)).status_code == 200


async def test_a_key_in_the_url_opens_nothing(fleet: Fleet) -> None:
    answer = await fleet.http.get("/v1/agents", params={"key": await fleet.key()})

    check_problem(answer, 401, "unauthenticated")


@pytest.mark.parametrize("path", ["/v1", "/v1/agents/", "/v1/agents/a/b", "/nope%2F"])
async def test_an_unknown_route_is_a_problem_document(fleet: Fleet, path: str) -> None:
    check_problem(await fleet.http.get(path), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v1/agents"), ("PATCH", "/v1/agents/x"), ("POST", "/healthz")]
)
async def test_a_wrong_method_is_a_problem_document(fleet: Fleet, method: str, path: str) -> None:
    answer = await fleet.http.request(method, path)

    check_problem(answer, 405, "method_not_allowed")
    assert "GET" in answer.headers["allow"]


async def test_a_defect_is_a_problem_document_that_tells_nothing(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise ZeroDivisionError(f"secret of {name}")

    key = await fleet.key()
    await fleet.roster()
    fleet.app.state.parts.reads._store = Broken()

    answer = await fleet.http.get("/v1/agents", headers={"Authorization": f"Bearer {key}"})

    document = check_problem(answer, 500, "internal")
    assert "secret" not in str(document)
    assert answer.headers["x-request-id"]
    assert "secret of roster" in caplog.text


async def test_every_answer_has_a_request_id_of_its_own(fleet: Fleet) -> None:
    answers = [await fleet.http.get(path) for path in ("/healthz", "/nope", "/v1/agents")]

    assert len({answer.headers["x-request-id"] for answer in answers}) == 3


async def test_a_callers_request_id_is_kept_and_logged(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "collector.request")
    caplog.handler.setFormatter(Formatter())

    answer = await fleet.http.get("/healthz", headers={"X-Request-ID": "mine-42"})

    assert answer.headers["x-request-id"] == "mine-42"
    assert "[mine-42] collector.request: GET /healthz 200" in caplog.text


@pytest.mark.parametrize("given", ["two words", "x" * 129, "", "vk_" + "A" * 32])
async def test_a_request_id_that_is_none_is_replaced(fleet: Fleet, given: str) -> None:
    answer = await fleet.http.get("/healthz", headers={"X-Request-ID": given})

    assert answer.headers["x-request-id"] != given


async def test_health_says_that_the_process_runs(fleet: Fleet) -> None:
    assert (await fleet.http.get("/healthz")).json() == {"status": "ok"}


async def test_a_collector_over_a_current_store_is_ready(fleet: Fleet) -> None:
    assert (await fleet.http.get("/readyz")).json() == {"status": "ready"}


async def test_a_clock_more_than_5_s_off_is_not_ready(fleet: Fleet) -> None:
    fleet.clock.off_by = 5 * SECOND
    assert (await fleet.http.get("/readyz")).status_code == 200

    fleet.clock.off_by = -5 * SECOND - 1
    document = check_problem(await fleet.http.get("/readyz"), 503, "not_ready")

    assert [error["field"] for error in document["errors"]] == ["clock"]


async def test_a_collector_that_can_not_commit_is_not_ready_until_something_is_written(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(fleet.store), "commit", _full)
        check_problem(await fleet.beat(), 503, "store_unavailable")

        document = check_problem(await fleet.http.get("/readyz"), 503, "not_ready")

        assert [error["field"] for error in document["errors"]] == ["commits"]
        assert "secret" not in str(document)

        fleet.clock.move(1)
        await fleet.app.state.parts.listener.listen()
        assert (await fleet.http.get("/readyz")).status_code == 200
        check_problem(await fleet.beat(), 503, "store_unavailable")
        assert (await fleet.http.get("/readyz")).status_code == 503

    assert (await fleet.beat()).status_code == 202
    assert (await fleet.http.get("/readyz")).status_code == 200


async def _full(*_: object, **__: object) -> None:
    raise StoreUnavailable("the disk of secret is full")


async def test_readiness_sees_a_commit_that_hangs(fleet: Fleet) -> None:
    fleet.app.state.parts.intake.committing_since = fleet.clock.now()
    fleet.clock.move(3)
    assert (await fleet.http.get("/readyz")).status_code == 200

    fleet.clock.move(0.001)

    document = check_problem(await fleet.http.get("/readyz"), 503, "not_ready")
    assert [error["field"] for error in document["errors"]] == ["commits"]


async def test_readiness_sees_a_collector_that_no_longer_listens(fleet: Fleet) -> None:
    fleet.clock.move(15.001)

    document = check_problem(await fleet.http.get("/readyz"), 503, "not_ready")

    assert [error["field"] for error in document["errors"]] == ["listening"]


async def test_readiness_tells_of_stamps_ahead_until_they_are_mended(fleet: Fleet) -> None:
    fleet.clock.move(7200)
    await fleet.beat()
    fleet.clock.move(-7200 + 60)
    await fleet.app.state.parts.listener.listen()
    document = check_problem(await fleet.http.get("/readyz"), 503, "not_ready")

    fleet.clock.move(5)
    await fleet.app.state.parts.listener.listen()

    assert [error["field"] for error in document["errors"]] == ["stamps"]
    assert (await fleet.http.get("/readyz")).status_code == 200
    assert (await fleet.worker())["age_seconds"] == 20


async def test_a_store_that_is_behind_is_not_ready(fleet: Fleet) -> None:
    await fleet.store._write(  # type: ignore[attr-defined]
        lambda conn: conn.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")
    )

    document = check_problem(await fleet.http.get("/readyz"), 503, "not_ready")

    assert [error["field"] for error in document["errors"]] == ["migrations"]


async def test_metrics_count_beats_by_outcome_and_name_no_tenant(fleet: Fleet) -> None:
    await fleet.beat("w", tenant="secretive")
    await fleet.beat("w", tenant="secretive", status="purple")

    text = (await fleet.http.get("/metrics")).text

    for line in (
        'collector_beats_total{outcome="accepted"} 1.0',
        'collector_beats_total{outcome="invalid_field"} 1.0',
        "collector_batch_beats_count 1.0",
        "collector_commit_seconds_count 1.0",
        "collector_queue_beats 0.0",
        'collector_key_cache_total{outcome="hit"} 1.0',
        'collector_key_cache_total{outcome="miss"} 1.0',
        "collector_argon2_runs_total 1.0",
    ):
        assert line in text
    assert "process_resident_memory_bytes" in text
    assert 'collector_build_info{python="' in text
    assert "secretive" not in text


async def test_the_contract_is_told_without_a_key(fleet: Fleet) -> None:
    told = (await fleet.http.get("/v1/contract")).json()

    assert told["implementation"] == "worker-presence"
    assert (told["beat_seconds"], told["ttl_seconds"]) == (15, 45)
    assert "paging" in told["capabilities"]


def every_error(root: type[CollectorError] = CollectorError) -> set[type[CollectorError]]:
    return {root}.union(*(every_error(child) for child in root.__subclasses__()))


def test_every_code_that_a_client_can_see_stands_in_the_contract() -> None:
    for code, status in STATUSES.items():
        assert f"| `{code}` | {status} |" in CONTRACT


def test_every_code_with_a_status_belongs_to_an_error() -> None:
    codes = {error.code for error in every_error() if hasattr(error, "code")}

    assert set(STATUSES) <= codes
