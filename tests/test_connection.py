"""What a connection may send and how long it may take, for those without a key too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from collector.api import connection
from collector.api.connection import MAX_PIPELINED, PIECE_BYTES, BoundedProtocol
from collector.store.protocol import Store
from contract.vocabulary import MAX_HEAD_BYTES, MAX_HEADERS
from tests.fleet import Fleet, TestClock
from tests.test_wire import both_ends, line, request

pytestmark = pytest.mark.anyio

FIRST = b"GET /healthz HTTP/1.1\r\n"


@pytest.fixture
def backend() -> str:
    """A connection knows no store: one is enough."""
    return "selfhosted"


@pytest.fixture
async def hasty(store: Store, clock: TestClock) -> AsyncIterator[Fleet]:
    async with Fleet.over(store, clock, request_seconds=1) as running:
        await running.beat("first")
        yield running


def headers(count: int) -> bytes:
    return b"".join(b"x-%d: y\r\n" % n for n in range(count))


@pytest.mark.parametrize(("count", "status"), [(MAX_HEADERS, 200), (MAX_HEADERS + 1, 431)])
async def test_a_head_has_at_most_so_many_headers(fleet: Fleet, count: int, status: int) -> None:
    async with line(fleet) as caller:
        caller.send(FIRST, headers(count), b"\r\n")
        answer = await caller.answer()

    assert answer[0] == status
    assert answer[2].get("code") == (None if status == 200 else "head_too_large")


@pytest.mark.parametrize("over", [0, 1])
async def test_a_head_has_at_most_so_many_bytes(fleet: Fleet, over: int) -> None:
    value = MAX_HEAD_BYTES - len("/healthz") - len("x-long") - 4 + over
    async with line(fleet) as caller:
        caller.send(FIRST, b"x-long: ", b"y" * value, b"\r\n\r\n")
        answer = await caller.answer()

    assert answer[0] == (431 if over else 200)


@pytest.mark.parametrize("opening", [b"GET /", FIRST + b"x-endless: "])
async def test_a_head_that_never_ends_is_refused_and_its_connection_ended(
    fleet: Fleet, opening: bytes
) -> None:
    async with line(fleet) as caller:
        caller.send(opening, b"a" * (2 * MAX_HEAD_BYTES))
        status, sent, content = await caller.answer()

        assert (status, content["code"]) == (431, "head_too_large")
        assert sent["connection"] == "close"
        assert await caller.is_ended()


async def test_what_is_not_http_is_told_in_a_problem_document(fleet: Fleet) -> None:
    async with line(fleet) as caller:
        caller.send(b"\x16\x03\x01 hello\r\n\r\n")
        status, sent, content = await caller.answer()

    assert (status, content["code"]) == (400, "malformed_request")
    assert sent["content-type"] == "application/problem+json"


async def test_requests_that_are_sent_ahead_are_all_answered_in_order(fleet: Fleet) -> None:
    async with line(fleet) as eager:
        eager.send(
            *(b"GET /%d HTTP/1.1\r\nX-Request-ID: n-%d\r\n\r\n" % (n, n) for n in range(900))
        )
        answered = [(await eager.answer())[1]["x-request-id"] for _ in range(900)]

    assert answered == [f"n-{n}" for n in range(900)]


async def test_few_requests_of_a_connection_wait_however_many_are_sent(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    honest = BoundedProtocol._feed

    def watched(self: BoundedProtocol, data: bytes) -> None:
        honest(self, data)
        waiting.append(len(self.pipeline))

    monkeypatch.setattr(BoundedProtocol, "_feed", watched)
    ask = b"GET /a HTTP/1.1\r\n\r\n"
    async with line(fleet) as flood:
        flood.send(ask * 20_000)
        for _ in range(2000):
            await flood.answer()

    assert max(waiting) <= MAX_PIPELINED + PIECE_BYTES // len(ask) + 1


async def test_a_refused_head_is_told_after_what_was_asked_before(fleet: Fleet) -> None:
    async with line(fleet) as caller:
        caller.send(FIRST, b"\r\n", FIRST, headers(MAX_HEADERS + 1), b"\r\n")

        assert [(await caller.answer())[0] for _ in range(2)] == [200, 431]


@pytest.mark.parametrize("said", [b"GE", FIRST, FIRST + b"content-length: 9\r\n\r\nab"])
async def test_a_request_that_is_not_whole_in_time_is_ended(hasty: Fleet, said: bytes) -> None:
    async with line(hasty) as slow:
        slow.send(said)
        if b"content-length" not in said:
            status, _, content = await slow.answer()
            assert (status, content["code"]) == (408, "request_timeout")
        else:
            # Its answer needed no body; the rest never came.
            assert (await slow.answer())[0] == 200
        assert await slow.is_ended()


async def test_a_beat_whose_rest_never_comes_is_told_and_stores_nothing(hasty: Fleet) -> None:
    whole = await request(hasty, "half")
    for fast in (True, False):
        extra = whole if fast else whole.replace(b"Host: collector", b"Host: x\r\nExpect: x")
        async with line(hasty) as slow:
            slow.send(extra[:-3])
            status, _, content = await slow.answer()
            assert (status, content["code"]) == (408, "request_timeout")
    assert {worker["agent_id"] for worker in await hasty.roster()} == {"first"}


async def test_a_connection_that_says_nothing_is_ended(hasty: Fleet) -> None:
    async with line(hasty) as silent:
        assert await silent.is_ended()


async def test_a_connection_that_beats_outlives_the_deadline_of_a_request(hasty: Fleet) -> None:
    async with both_ends(hasty) as (steady, theirs):
        for _ in range(3):
            steady.send(await request(hasty, "steady"))
            assert (await steady.answer())[0] == 202
            # The deadline of what the client owed before this beat.
            theirs._owes_since = theirs.loop.time() - 2
            theirs._on_deadline()
        steady.send(FIRST, b"\r\n")

        assert (await steady.answer())[0] == 200


async def test_connections_leave_descriptors_for_the_store(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with line(fleet) as known:
        known.send(FIRST, b"\r\n")
        await known.answer()
        monkeypatch.setattr(connection, "most_connections", lambda: 1)

        async with line(fleet) as beyond:
            beyond.send(FIRST, b"\r\n")
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await beyond.answer()
        known.send(FIRST, b"\r\n")
        answer: Any = await known.answer()

    assert answer[0] == 200


@pytest.mark.parametrize("body", [b"zz\r\n", b"5\r\nhello\r\nzz\r\n"])
@pytest.mark.parametrize("path", ["/v1/agents/heartbeat", "/v1/keys"])
async def test_a_body_whose_chunks_are_broken_is_refused_and_its_connection_ended(
    fleet: Fleet, path: str, body: bytes
) -> None:
    key = await fleet.key()
    async with line(fleet) as caller:
        head = f"POST {path} HTTP/1.1\r\nAuthorization: Bearer {key}\r\n"
        caller.send(head.encode(), b"Transfer-Encoding: chunked\r\n\r\n", body)
        status, _, content = await caller.answer()

        assert (status, content["code"]) == (400, "malformed_request")
        assert await caller.is_ended()


async def test_an_answer_that_was_asked_for_before_comes_before_such_a_refusal(
    fleet: Fleet,
) -> None:
    key = await fleet.key()
    async with line(fleet) as caller:
        head = f"POST /v1/keys HTTP/1.1\r\nAuthorization: Bearer {key}\r\n"
        caller.send(FIRST, b"\r\n", head.encode(), b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        first, second = await caller.answer(), await caller.answer()

        assert (first[0], second[0]) == (200, 400)
        assert await caller.is_ended()
