"""`Cache-Control: no-store` and `X-Content-Type-Options: nosniff`, whoever answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping

import pytest

from collector.api import auth
from collector.app import ROUTES
from collector.errors import StoreUnavailable
from collector.store.protocol import Store
from contract.vocabulary import MAX_HEADERS
from tests.fleet import Fleet, TestClock
from tests.test_wire import Held, line, request

pytestmark = pytest.mark.anyio

STREAMS = ("/events", "/openorca/events")
FILES = ("/", "/console/{path:path}")
PATHS = sorted({route.path for route in ROUTES} - {*STREAMS, *FILES})


@pytest.fixture(params=["on", "off"], ids=["fast path", "app"])
async def door(
    store: Store, clock: TestClock, request: pytest.FixtureRequest
) -> AsyncIterator[Fleet]:
    async with Fleet.over(store, clock, fast_path=request.param, request_seconds=1) as running:
        await running.beat("first")
        yield running


def are_there(headers: Mapping[str, str]) -> bool:
    """Both, and each once."""
    found = (headers.get("cache-control"), headers.get("x-content-type-options"))
    return found == ("no-store", "nosniff")


@pytest.mark.parametrize("path", [*PATHS, "/no/such/route", "/console/none.js"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH"])
async def test_every_route_and_every_refusal_of_one_has_them(
    fleet: Fleet, path: str, method: str
) -> None:
    asked = re.sub(r"\{\w+\}", "first", path)
    for headers in ({}, await fleet.headers()):
        answer = await fleet.http.request(method, asked, headers=headers)

        assert are_there(answer.headers), (answer.status_code, answer.headers)


async def test_an_answer_to_a_beat_has_them_whether_it_is_good_or_bad(door: Fleet) -> None:
    answers = [await door.beat("w"), await door.beat("w", status="purple"), await door.post(b"{")]

    assert [answer.status_code for answer in answers] == [202, 422, 400]
    assert all(are_there(answer.headers) for answer in answers)


async def test_a_beat_that_is_not_committed_is_answered_with_them(door: Fleet) -> None:
    Held(door, StoreUnavailable("gone")).let_go.set()
    async with line(door) as unlucky:
        unlucky.send(await request(door, "unlucky"))
        status, headers, _ = await unlucky.answer()

    assert status == 503
    assert are_there(headers)


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (431, b"x: y\r\n" * (MAX_HEADERS + 1) + b"\r\n"),
        (408, b"x: y\r\n"),
        (400, b"no header\r\n\r\n"),
    ],
)
async def test_what_a_connection_refuses_by_itself_has_them(
    door: Fleet, status: int, sent: bytes
) -> None:
    async with line(door) as caller:
        caller.send(b"GET /healthz HTTP/1.1\r\n", sent)
        told, headers, _ = await caller.answer()

    assert told == status
    assert are_there(headers)


async def test_a_defect_is_answered_with_them(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(auth, "admit", broken)
    answer = await fleet.get("/v1/presence")

    assert answer.status_code == 500
    assert are_there(answer.headers)


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_has_them(fleet: Fleet, path: str) -> None:
    async with fleet.http.stream("GET", path, headers=await fleet.headers()) as answer:
        assert answer.status_code == 200
        assert are_there(answer.headers)


@pytest.mark.parametrize("path", ["/", "/console/console.css"])
async def test_the_consoles_files_keep_their_own_caching(fleet: Fleet, path: str) -> None:
    answer = await fleet.http.get(path)

    assert answer.status_code == 200
    assert answer.headers.get_list("cache-control") == ["no-cache"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    again = await fleet.http.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.headers["cache-control"]) == (304, "no-cache")
