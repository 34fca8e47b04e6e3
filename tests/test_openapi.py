"""The API's description: complete, true to the contract's page, and tried on a real collector."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

import httpx2
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.definitions import OPENAPI_31

from collector import keys
from collector.api import openapi
from collector.api.operations import EVENT_STREAM, OPERATIONS
from collector.app import ROUTES, create_app
from collector.clock import SystemClock
from collector.settings import Settings
from collector.store.open import store_for
from contract.vocabulary import MAX_AUDIT_PAGE, MAX_LAST, MAX_PAGE, MAX_WAIT_SECONDS, SCOPES
from tests.factories import body
from tests.fleet import Fleet, serving
from tests.test_doors import GUARDED, OPEN

SERVED = openapi.doors(ROUTES)
DOCUMENT = openapi.document(SERVED)


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }


def parameter(method: str, path: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in operations()[method, path]["parameters"] if each["name"] == name]
    schema: dict[str, Any] = found["schema"]
    return schema


def test_every_route_is_described_and_none_that_is_not_served() -> None:
    assert set(operations()) == set(SERVED)
    assert set(OPERATIONS) == set(SERVED)


def test_the_document_is_openapi() -> None:
    assert jsonschema_rs.is_valid(OPENAPI_31, DOCUMENT)


def test_the_scopes_are_those_of_the_contracts_page() -> None:
    described = {
        (*door, scope)
        for door, operation in operations().items()
        for each in operation["security"]
        for scopes in each.values()
        for scope in scopes
    }

    assert described == set(GUARDED)
    assert {door for door, each in operations().items() if not each["security"]} == {
        door[:2] for door in OPEN
    }


@pytest.mark.parametrize("door", SERVED, ids=" ".join)
def test_every_refusal_is_a_problem(door: tuple[str, str]) -> None:
    answers = operations()[door]["responses"]
    refusals = {status: answer for status, answer in answers.items() if int(status) >= 400}

    assert {"401", "403"} <= set(refusals) or not operations()[door]["security"]
    for answer in refusals.values():
        assert answer["content"] == {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        }


def test_the_limits_of_parameters_are_the_vocabularys() -> None:
    assert parameter("GET", "/v1/agents", "limit")["maximum"] == MAX_PAGE
    assert parameter("GET", "/v1/audit", "limit")["maximum"] == MAX_AUDIT_PAGE
    assert parameter("GET", "/v1/events", "last")["maximum"] == MAX_LAST
    assert parameter("GET", "/v1/events", "wait")["maximum"] == MAX_WAIT_SECONDS


async def test_the_document_is_served_without_a_key(fleet: Fleet) -> None:
    answer = await fleet.http.get("/openapi.json")

    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == DOCUMENT


@dataclass(frozen=True)
class Tried:
    """A collector on the embedded store, on its own thread, and a key of every scope."""

    url: str
    headers: dict[str, str]
    # A key that may be worked on, by the method that does it.
    key_ids: dict[str, str]

    def beat(self, agent_id: str) -> None:
        sent = httpx2.post(
            f"{self.url}/v1/agents/heartbeat", headers=self.headers, json=body(agent_id)
        )
        assert sent.status_code == 202

    def sign_in(self) -> dict[str, Any]:
        signed_in = httpx2.post(f"{self.url}/v1/sessions", headers=self.headers)
        assert signed_in.status_code == 201
        session: dict[str, Any] = signed_in.json()
        return session


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    path = tmp_path_factory.mktemp("tried") / "collector.db"
    ready, done = threading.Event(), asyncio.Event()
    running: list[tuple[Tried, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        given = Settings(store_url=f"sqlite:///{path}")
        store, clock = store_for(given), SystemClock()
        await store.open(serving=True)
        await store.migrate()
        _, key = await keys.create(store, "acme", SCOPES, now=clock.now())
        spare = {
            method: (await keys.create(store, "acme", ["read"], now=clock.now()))[0].id
            for method in ("DELETE", "POST")
        }
        async with serving(create_app(given, store=store, clock=clock)) as url:
            headers = {"Authorization": f"Bearer {key}"}
            running.append((Tried(url, headers, spare), asyncio.get_running_loop()))
            ready.set()
            await done.wait()
        await store.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(20), "the collector did not start"
    collector, loop = running[0]
    yield collector
    loop.call_soon_threadsafe(done.set)
    thread.join()


Case: TypeAlias = "schemathesis.Case[Any]"
ENDLESS = [path for (_, path), each in OPERATIONS.items() if each.answer.media_type == EVENT_STREAM]
API = schemathesis.openapi.from_dict(DOCUMENT).exclude(path=ENDLESS)


@API.parametrize()
@settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_the_collector_does_what_the_document_says(case: Case, tried: Tried) -> None:
    mind_what_no_schema_can_say(case)
    is_valid = case.meta is not None and case.meta.generation.mode.is_positive
    if is_valid:
        name_what_is_there(case, tried)

    answer = case.call_and_validate(base_url=tried.url, headers=tried.headers)

    assert not (is_valid and answer.status_code == 404)


def name_what_is_there(case: Case, tried: Tried) -> None:
    """A valid path is one of a worker, whatever it is called, or of a key that exists."""
    path = case.path_parameters or {}
    if "agent_id" in path:
        tried.beat(unquote(path["agent_id"]))
    if "key_id" in path:
        case.path_parameters = {"key_id": tried.key_ids[case.method]}
    if "session_id" in path:
        case.path_parameters = {"session_id": tried.sign_in()["id"]}


def mind_what_no_schema_can_say(case: Case) -> None:
    """Cursors are given, not made up; a removal has a filter; numbers are written plainly."""
    query: dict[str, Any] = case.query or {}
    if re.fullmatch(r"[12]?[0-9](\.[0-9]+)?|30(\.0)?", str(query.get("wait"))):
        query["wait"] = "0.01"  # a valid one; nobody waits for half a minute here
    for name, value in query.items():
        if value in (None, [], {}):
            query[name] = "something"  # such a value is not sent at all, and so breaks no rule
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    query.pop("cursor", None)
    if (case.method, case.path) == ("DELETE", "/v1/agents") and not set(query) - {"dry_run"}:
        query["project"] = "nobody's"
    for name, value in query.items():
        if isinstance(value, float):
            query[name] = f"{value:.9f}"
    case.query = query
