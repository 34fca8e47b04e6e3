"""The suite's own sockets: what leaves together, and a server that minds it is found out."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from conformance.case import Case, all_cases
from conformance.runner import Outcome, run
from conformance.sockets import FRAMINGS, Address, Framing, chunked
from conformance.target import Keys, Target
from conformance.trial import Trial
from conformance.wire import HEARTBEAT, body

pytestmark = pytest.mark.anyio

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}"
ROSTER = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"workers":[]}'
# What a server was sent, read by read.
Segments = list[bytes]


def problem(detail: str) -> bytes:
    content = b'{"code":"too_large","detail":"%s"}' % detail.encode()
    head = b"HTTP/1.1 413 X\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n"
    return head % len(content) + content


@asynccontextmanager
async def server(
    answer: Callable[[Segments], bytes], tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Anybody's server, which answers each request by the segments that it came in."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        segments: Segments = []
        while not is_whole(b"".join(segments)) and (segment := await reader.read(1 << 20)):
            segments.append(segment)
        if segments:
            is_read = segments[0].startswith(b"GET")
            writer.write(ROSTER if is_read else answer(segments))
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls, limit=1 << 20)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/behind"


def is_whole(sent: bytes) -> bool:
    head, end, content = sent.partition(b"\r\n\r\n")
    if b"chunked" in head:
        return content.endswith(b"0\r\n\r\n")
    length = LENGTH.search(head)
    return bool(end) and len(content) >= (int(length[1]) if length else 0)


async def judged(url: str) -> Outcome:
    """What the suite says of one heartbeat there, whatever becomes of it."""

    async def a_claim(t: Trial) -> None:
        (await t.a.post(body(t.name()))).was(202, 413)

    case = Case("R10", "core", (), "together", True, "bodies", a_claim)
    results = await run(Target("theirs", url, Keys("one", "other")), [case])
    return results.outcomes[0]


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda each: each.name)
async def test_a_server_reads_what_a_framing_says(framing: Framing) -> None:
    seen: list[Segments] = []

    def answer(segments: Segments) -> bytes:
        seen.append(segments)
        return ACCEPTED

    async with server(answer) as url:
        address = Address.of(url, most=1)
        head = address.head("POST", HEARTBEAT, [("Content-Length", "5")])
        async with address.connected() as line:
            told = await line.exchange("a beat", *framing.cut(head, b"12345"))

    assert (told.status, told.text) == (202, "{}")
    assert seen == [framing.cut(head, b"12345")]
    assert head.startswith(b"POST /behind/v1/agents/heartbeat HTTP/1.1\r\nHost: 127.0.0.1:")


def test_framings_cut_the_same_request_in_different_places() -> None:
    cut = [framing.cut(b"head\r\n\r\n", b"body") for framing in FRAMINGS]

    assert {b"".join(segments) for segments in cut} == {b"head\r\n\r\nbody"}
    assert [len(segments) for segments in cut] == [1, 2, 5]


async def test_sockets_of_the_suite_speak_tls_and_trust_whom_the_suite_trusts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with authority.cert_pem.tempfile() as trusted:
        monkeypatch.setenv("SSL_CERT_FILE", trusted)
        async with server(lambda _: ACCEPTED, tls) as url:
            outcome = await judged(url)

    assert outcome.result == "passed", outcome.seen


@pytest.mark.parametrize(
    "answer",
    [
        lambda segments: ACCEPTED if len(segments) == 1 else problem("too long"),
        lambda segments: problem("too long" if len(segments) == 2 else "far too long"),
    ],
    ids=["another status", "another problem"],
)
async def test_a_server_that_answers_otherwise_when_the_head_comes_first_is_named(
    answer: Callable[[Segments], bytes],
) -> None:
    # The preflight's beats are accepted however they come.
    async with server(lambda each: ACCEPTED if b"preflight" in each[-1] else answer(each)) as url:
        outcome = await judged(url)

    assert (outcome.result, outcome.expected) == ("failed", "the same answer in every framing")
    assert "heartbeat 1: head and body together" in outcome.seen
    assert "the head first" in outcome.seen


async def test_a_server_that_answers_alike_is_not() -> None:
    async with server(lambda _: ACCEPTED) as url:
        assert (await judged(url)).result == "passed"


async def test_answers_in_chunks_after_a_go_ahead_are_read() -> None:
    go_ahead, head = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 400 No\r\n"
    content = chunked(b"x" * 2500)
    async with server(
        lambda _: go_ahead + head + b"Transfer-Encoding: chunked\r\n\r\n" + content
    ) as url:
        address = Address.of(url, most=1)
        async with address.connected() as line:
            told = await line.exchange("a beat", address.head("POST", HEARTBEAT, []))

    assert (told.status, told.text) == (400, "x" * 2500)


async def test_behind_a_proxy_cases_are_judged_as_the_http_client_frames_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 0

    def answer(_: Segments) -> bytes:
        nonlocal count
        count += 1
        return ACCEPTED

    async with server(answer) as url:
        monkeypatch.setenv("http_proxy", url.removesuffix("/behind"))
        outcome = await judged("http://elsewhere.invalid")

    assert (outcome.result, count) == ("passed", 3)


def test_every_case_on_bodies_and_limits_is_judged_in_every_framing() -> None:
    unframed = {case.name for case in all_cases() if not case.framed}

    assert not {case.name for case in all_cases() if case.rule in ("R6", "R8", "R9", "R10")} & (
        unframed
    )
    assert "errors.too_long_a_body_is_too_large" not in unframed
