"""Heartbeats that are let in before the app sees them: to a client they are like all others."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from collector.api import admission, heads
from collector.api import workers as door
from collector.api.wire import Protocol, Waiting
from collector.errors import StoreUnavailable
from collector.logs import REQUESTS, Formatter
from collector.store.protocol import Store
from collector.values import SECOND, Beat
from tests.factories import body
from tests.fleet import Fleet, TestClock
from tests.processes import Serving, wait_until

pytestmark = pytest.mark.anyio

Answer = tuple[int, dict[str, str], Any]


@pytest.fixture
def backend() -> str:
    """A connection knows no store: one is enough."""
    return "selfhosted"


class Line:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self) -> Answer:
        async with asyncio.timeout(20):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
            content = await self.reader.readexactly(int(headers["content-length"]))
        return int(first.split()[1]), headers, json.loads(content)

    async def is_ended(self) -> bool:
        async with asyncio.timeout(20):
            return await self.reader.read() == b""


@asynccontextmanager
async def line(fleet: Fleet) -> AsyncIterator[Line]:
    address = urlsplit(fleet.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def both_ends(fleet: Fleet) -> AsyncIterator[tuple[Line, Protocol]]:
    """A connection, and the collector's end of it."""
    others = set(fleet.connections)
    async with line(fleet) as ours:
        await until(lambda: fleet.connections > others)
        (theirs,) = fleet.connections - others
        yield ours, theirs


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


class Arrivals:
    """How many bytes have come to each connection of the collector."""

    def __init__(self) -> None:
        self.counts: Counter[Protocol] = Counter()

    async def all_of(self, count: int, connection: Protocol) -> None:
        await until(lambda: self.counts[connection] == count)


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> Arrivals:
    made = Arrivals()
    honest = Protocol.data_received

    def counted(self: Protocol, data: bytes) -> None:
        honest(self, data)
        made.counts[self] += len(data)

    monkeypatch.setattr(Protocol, "data_received", counted)
    return made


async def request(fleet: Fleet, agent_id: str, *extra: str, version: str = "1.1") -> bytes:
    """A beat, as it stands on the wire."""
    content = json.dumps(body(agent_id=agent_id)).encode()
    lines = [
        f"POST /v1/agents/heartbeat HTTP/{version}",
        "Host: collector",
        f"Authorization: {(await fleet.headers('acme'))['Authorization']}",
        f"Content-Length: {len(content)}",
        *extra,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


class Held:
    """A store whose commits wait until they are let go, or fail."""

    def __init__(self, fleet: Fleet, failing: Exception | None = None) -> None:
        self._fleet, self._failing = fleet, failing
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()
        intake: Any = fleet.app.state.parts.intake
        intake._store = self

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        self.begun.set()
        await self.let_go.wait()
        if self._failing is not None:
            raise self._failing
        return await self._fleet.store.commit(beats, now=now, gone=gone)


@pytest.fixture
async def known(fleet: Fleet) -> Fleet:
    """A fleet whose key was in use before: from now on its beats are let in at once."""
    await fleet.beat("first")
    return fleet


async def ids(fleet: Fleet) -> set[str]:
    return {worker["agent_id"] for worker in await fleet.roster()} - {"first"}


async def test_a_beat_looks_the_same_whichever_way_it_came(known: Fleet) -> None:
    async with line(known) as plain, line(known) as other:
        plain.send(await request(known, "plain"))
        # Whoever waits for a go-ahead is left to the app.
        other.send(await request(known, "other", "Expect: 100-continue"))
        status, headers, content = await plain.answer()
        assert (await other.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        other_status, other_headers, other_content = await other.answer()

    assert (status, set(headers), content.keys()) == (
        other_status,
        set(other_headers),
        other_content.keys(),
    )
    assert status == 202
    assert headers["content-type"] == other_headers["content-type"]
    assert headers["x-request-id"] != other_headers["x-request-id"]


async def test_a_beat_may_come_byte_by_byte(known: Fleet) -> None:
    async with line(known) as slow:
        for byte in await request(known, "slow"):
            slow.send(bytes([byte]))
            await slow.writer.drain()
            await asyncio.sleep(0)
        assert (await slow.answer())[0] == 202
    assert await ids(known) == {"slow"}


async def test_a_beat_may_be_cut_in_two_anywhere(known: Fleet) -> None:
    whole = await request(known, "cut")
    async with line(known) as cut:
        for place in range(1, len(whole)):
            cut.send(whole[:place])
            await cut.writer.drain()
            await asyncio.sleep(0)
            cut.send(whole[place:])
            assert (await cut.answer())[0] == 202
    assert await ids(known) == {"cut"}


async def test_a_plain_beat_is_let_in_before_the_app_sees_it(
    known: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise AssertionError("the app has seen it")

    monkeypatch.setattr(door.HeartbeatEndpoint, "__call__", refuse)
    head, _, content = (await request(known, "plain")).partition(b"\r\n\r\n")
    async with line(known) as plain:
        plain.send(head, b"\r\n\r\n", content)
        assert (await plain.answer())[0] == 202
        # From now on its head is known.
        monkeypatch.setattr(heads, "_read", lambda *_: None)
        plain.send(head, b"\r\n\r\n")
        await plain.writer.drain()
        plain.send(content)
        assert (await plain.answer())[0] == 202


async def test_beats_with_one_head_are_told_apart(known: Fleet) -> None:
    async with line(known) as same:
        answers = []
        for name in ("one", "two"):
            same.send(await request(known, name))
            answers.append((await same.answer())[1]["x-request-id"])
    assert len(set(answers)) == 2
    assert await ids(known) == {"one", "two"}


async def test_a_key_that_is_revoked_no_longer_opens_with_a_head_that_is_known(
    known: Fleet,
) -> None:
    beat = await request(known, "once")
    async with line(known) as cut_off:
        cut_off.send(beat)
        assert (await cut_off.answer())[0] == 202
        for key in await known.store.keys("acme"):
            await known.store.revoke_key("acme", key.id, now=known.clock.now())
        await known.app.state.parts.keyring.refresh()
        cut_off.send(beat)
        assert (await cut_off.answer())[0] == 401


async def test_a_beat_is_stamped_when_its_head_arrives(known: Fleet) -> None:
    head, end, content = (await request(known, "slow")).partition(b"\r\n\r\n")
    began = known.clock.now()
    async with line(known) as slow:
        slow.send(head, end)
        (connection,) = await holding(known)
        known.clock.move(2)
        slow.send(content)
        assert (await slow.answer())[2]["server_time"] == began / SECOND
    assert connection._half is None


async def test_who_has_no_right_to_beat_hears_it_before_the_body(known: Fleet) -> None:
    whole = await request(known, "stranger")
    head = whole.partition(b"\r\n\r\n")[0].replace(b"Bearer vk_", b"Bearer vk_X")
    async with line(known) as stranger:
        stranger.send(head, b"\r\n\r\n")
        assert (await stranger.answer())[0] == 401


async def test_a_body_that_will_be_too_long_is_told_so_and_the_connection_goes_on(
    known: Fleet,
) -> None:
    good = await request(known, "good")
    head = good.partition(b"\r\n\r\n")[0].rpartition(b"\r\n")[0]
    async with line(known) as long:
        long.send(good)
        assert (await long.answer())[0] == 202
        (connection,) = connections(known, long)
        long.send(head, b"\r\nContent-Length: 20000\r\n\r\n")
        async with asyncio.timeout(20):
            while not connection._is_within_a_request:
                await asyncio.sleep(0)
        long.send(b" " * 20_000)
        assert (await long.answer())[0] == 413
        long.send(good)
        assert (await long.answer())[0] == 202


async def test_a_long_head_is_left_to_the_app(known: Fleet) -> None:
    async with line(known) as long:
        long.send(await request(known, "long", f"X-Long: {'x' * 10_000}"))
        assert (await long.answer())[0] == 202
        (connection,) = connections(known, long)
        assert not isinstance(connection.cycle, Waiting)


async def test_a_beat_in_the_body_of_another_request_is_none(known: Fleet) -> None:
    inner = await request(known, "smuggled")
    key = (await known.headers("acme"))["Authorization"]
    outer = f"POST /v1/nothing HTTP/1.1\r\nHost: c\r\nAuthorization: {key}\r\n"
    async with line(known) as cunning:
        cunning.send(outer.encode(), b"Content-Length: %d\r\n\r\n" % len(inner))
        assert (await cunning.answer())[0] == 404
        (connection,) = connections(known, cunning)
        cunning.send(inner)
        # Until it was read: together with the next one it would not look like one beat.
        while connection._is_within_a_request and connection.cycle.response_complete:
            await asyncio.sleep(0)
        cunning.send(await request(known, "honest"))
        assert (await cunning.answer())[0] == 202
    assert await ids(known) == {"honest"}


async def test_a_client_that_does_not_read_is_left_to_uvicorn_which_waits_for_it(
    known: Fleet,
) -> None:
    async with line(known) as deaf:
        deaf.send(await request(known, "deaf"))
        await deaf.answer()
        (connection,) = connections(known, deaf)
        connection.pause_writing()
        deaf.send(await request(known, "deaf"))
        while connection.cycle.response_complete:
            await asyncio.sleep(0)
        assert not isinstance(connection.cycle, Waiting)
        connection.resume_writing()
        assert (await deaf.answer())[0] == 202


async def test_a_connection_ends_when_no_beat_has_come_for_long_enough(known: Fleet) -> None:
    async with line(known) as resting:
        for _ in range(2):
            resting.send(await request(known, "resting"))
            await resting.answer()
        (connection,) = connections(known, resting)
        connection.timeout_keep_alive_handler()
        assert not connection.transport.is_closing()

        connection._resting_since -= connection.timeout_keep_alive
        connection.timeout_keep_alive_handler()
        assert await resting.is_ended()


async def test_a_connection_does_not_end_while_a_beat_is_under_way(known: Fleet) -> None:
    beat = await request(known, "busy")
    async with line(known) as busy:
        busy.send(beat)
        await busy.answer()
        (connection,) = connections(known, busy)
        held = Held(known)
        busy.send(beat)
        await held.begun.wait()
        connection._resting_since -= connection.timeout_keep_alive
        connection.timeout_keep_alive_handler()
        assert not connection.transport.is_closing()

        held.let_go.set()
        assert (await busy.answer())[0] == 202
        busy.send(beat[:-5])
        await holding(known)
        assert connection.timeout_keep_alive_task is None
        busy.send(beat[-5:])
        assert (await busy.answer())[0] == 202


def connections(fleet: Fleet, *lines: Line) -> list[Protocol]:
    """The collector's ends of these lines, or of all."""
    places = {each.writer.get_extra_info("sockname") for each in lines}
    return [each for each in fleet.connections if not lines or each.client in places]


async def holding(fleet: Fleet) -> list[Protocol]:
    """Those that have half a beat, once there are any."""
    async with asyncio.timeout(20):
        while not (found := [each for each in connections(fleet) if each._half is not None]):
            await asyncio.sleep(0)
    return found


async def test_a_beat_may_come_in_chunks(known: Fleet) -> None:
    content = json.dumps(body(agent_id="chunked")).encode()
    whole = await request(known, "chunked", "Transfer-Encoding: chunked")
    head = whole.partition(b"\r\n\r\n")[0]
    head = b"\r\n".join(x for x in head.split(b"\r\n") if not x.startswith(b"Content-Length"))
    chunks = [content[:7], content[7:]]
    async with line(known) as chunked:
        chunked.send(head, b"\r\n\r\n", *(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks))
        chunked.send(b"0\r\n\r\n")
        assert (await chunked.answer())[0] == 202
    assert await ids(known) == {"chunked"}


async def test_answers_come_in_the_order_of_requests(known: Fleet) -> None:
    key = (await known.headers("acme"))["Authorization"]
    read = f"GET /v1/agents/a HTTP/1.1\r\nHost: c\r\nAuthorization: {key}\r\n\r\n".encode()
    async with line(known) as piped:
        beats = [await request(known, name, f"X-Request-ID: {name}") for name in "abc"]
        piped.send(beats[0], read, beats[1], beats[2])
        answers = [await piped.answer() for _ in range(4)]
    assert [status for status, _, _ in answers] == [202, 200, 202, 202]
    told = [headers["x-request-id"] for _, headers, _ in answers]
    assert (told[0], told[2:]) == ("a", ["b", "c"])


async def test_a_thousand_beats_of_one_that_reads_nothing_are_answered_all(known: Fleet) -> None:
    async with line(known) as deaf:
        for nth in range(1000):
            deaf.send(await request(known, f"w-{nth % 10}", f"X-Request-ID: {nth}"))
        told = [(await deaf.answer())[1]["x-request-id"] for _ in range(1000)]
    assert told == [str(nth) for nth in range(1000)]


@pytest.mark.parametrize("extra", [("Connection: close",), ()], ids=["1.1 and close", "1.0"])
async def test_a_connection_that_is_to_end_ends(known: Fleet, extra: tuple[str, ...]) -> None:
    async with line(known) as last:
        last.send(await request(known, "last", *extra, version="1.1" if extra else "1.0"))
        status, headers, _ = await last.answer()
        assert (status, headers["connection"]) == (202, "close")
        assert await last.is_ended()


async def test_what_is_wrong_with_a_beat_is_said_and_the_connection_goes_on(known: Fleet) -> None:
    async with line(known) as mixed:
        good = await request(known, "good")
        head = good.partition(b"\r\n\r\n")[0].rpartition(b"\r\n")[0]
        for content in (b"{", b"[]", b"{}", b" " * 20_000):
            mixed.send(head, b"\r\nContent-Length: %d\r\n\r\n" % len(content), content)
            mixed.send(good)
        answers = [await mixed.answer() for _ in range(8)]
    assert [status for status, _, _ in answers] == [400, 202, 422, 202, 422, 202, 413, 202]


async def test_a_commit_that_fails_is_told_and_counted(known: Fleet) -> None:
    Held(known, StoreUnavailable("gone")).let_go.set()
    async with line(known) as unlucky:
        unlucky.send(await request(known, "unlucky", "X-Request-ID: mine"))
        status, headers, problem = await unlucky.answer()
    assert (status, problem["code"], headers["x-request-id"]) == (503, "store_unavailable", "mine")
    assert headers["content-type"] == "application/problem+json"
    assert (
        'collector_beats_total{outcome="store_unavailable"} 1.0'
        in (await known.http.get("/metrics")).text
    )


async def test_one_that_hangs_up_costs_its_neighbour_nothing(known: Fleet) -> None:
    held = Held(known)
    async with line(known) as staying:
        async with line(known) as leaving:
            leaving.send(await request(known, "leaving"))
            await leaving.writer.drain()
            await held.begun.wait()
        staying.send(await request(known, "staying"))
        held.let_go.set()
        assert (await staying.answer())[0] == 202
    assert await ids(known) == {"leaving", "staying"}


async def test_a_defect_of_ours_is_told_as_one(
    known: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Beat:
        raise TypeError("a defect")

    monkeypatch.setattr(admission, "beat_of", broken)
    async with line(known) as unlucky:
        unlucky.send(await request(known, "unlucky"))
        status, _, problem = await unlucky.answer()

    assert (status, problem["code"]) == (500, "internal")
    assert "a defect" in caplog.text


async def test_the_log_says_whose_beat_it_was(
    known: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, REQUESTS)
    caplog.handler.setFormatter(Formatter())
    Held(known, StoreUnavailable("gone")).let_go.set()
    async with line(known) as unlucky:
        unlucky.send(await request(known, "unlucky", "X-Request-ID: mine"))
        await unlucky.answer()

    assert "[mine acme " in next(x for x in caplog.text.splitlines() if "heartbeat 503" in x)


def test_beats_that_a_stop_finds_under_way_are_answered(tmp_path: Path) -> None:
    """One waits for its commit, of the other a few bytes are missing."""
    with Serving(f"sqlite:///{tmp_path}/store.db", tmp_path) as serving:
        address = urlsplit(serving.url)
        place = (str(address.hostname), int(address.port or 0))
        with socket.create_connection(place) as whole, socket.create_connection(place) as half:
            beat = raw(str(serving.key))
            assert told(whole, beat).startswith(b"HTTP/1.1 202")
            with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
                # Nobody else writes for now.
                other.execute("BEGIN IMMEDIATE")
                half.sendall(beat[:-5])
                whole.sendall(beat)
                wait_until(lambda: "collector_queue_beats 1.0" in metrics(serving.url))
                serving.signal(signal.SIGTERM)
                wait_until(lambda: not takes_more(place))
                other.execute("ROLLBACK")
            answers = [told(whole, b""), told(half, beat[-5:])]

    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 202")
        assert b"connection: close" in answer


def metrics(url: str) -> str:
    return httpx2.get(f"{url}/metrics", timeout=20, trust_env=False).text


def takes_more(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, 20).close()
    except OSError:
        return False
    return True


def raw(key: str) -> bytes:
    content = json.dumps(body()).encode()
    lines = [
        "POST /v1/agents/heartbeat HTTP/1.1",
        "Host: collector",
        f"Authorization: Bearer {key}",
        f"Content-Length: {len(content)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def told(connection: socket.socket, rest: bytes) -> bytes:
    """The whole answer: head and body may come apart."""
    connection.settimeout(20)
    connection.sendall(rest)
    answer = b""
    while not answer.endswith(b"}"):
        received = connection.recv(4096)
        assert received, f"the connection ended after {answer!r}"
        answer += received
    return answer


def padded(whole: bytes, length: int) -> bytes:
    """The same beat with a body of that many bytes, all of it JSON."""
    head, _, content = whole.partition(b"\r\n\r\n")
    content += b" " * (length - len(content))
    first, *lines = head.split(b"\r\n")
    kept = [each for each in lines if not each.startswith(b"Content-Length")]
    sized = [first, *kept, b"Content-Length: %d" % length]
    return b"\r\n".join(sized) + b"\r\n\r\n" + content


FRAMINGS = ("one segment", "head first", "in halves")


def pieces(whole: bytes, framing: str) -> list[bytes]:
    body_at = whole.index(b"\r\n\r\n") + 4
    middle = (body_at + len(whole)) // 2
    cut = {"one segment": len(whole), "head first": body_at, "in halves": middle}[framing]
    return [piece for piece in (whole[:cut], whole[cut:]) if piece]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(("length", "status"), [(16_384, 202), (16_385, 413), (100_000, 413)])
async def test_the_limit_of_a_body_holds_however_it_is_framed(
    known: Fleet, arrivals: Arrivals, framing: str, length: int, status: int
) -> None:
    async with both_ends(known) as (sender, theirs):
        sent = 0
        for piece in pieces(padded(await request(known, "large"), length), framing):
            sender.send(piece)
            sent += len(piece)
            await arrivals.all_of(sent, theirs)
        answer = await sender.answer()

    assert answer[0] == status
    assert await ids(known) == ({"large"} if status == 202 else set())


async def test_a_beat_that_is_handed_back_half_read_keeps_its_first_stamp(
    known: Fleet, arrivals: Arrivals
) -> None:
    whole = await request(known, "late")
    stamp = known.clock.now()
    async with both_ends(known) as (late, theirs):
        late.send(whole[:-1])
        await arrivals.all_of(len(whole) - 1, theirs)
        known.clock.move(30)
        # Two bytes instead of one: the second begins a request that is not one.
        late.send(whole[-1:], b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        status, _, content = await late.answer()

    assert (status, content["server_time"]) == (202, stamp / SECOND)


async def test_a_body_that_its_sender_never_finished_is_no_beat(
    fleet: Fleet, arrivals: Arrivals
) -> None:
    whole = padded(await request(fleet, "cut-off"), 900)
    async with both_ends(fleet) as (cut, theirs):
        cut.send(whole[:-5])
        await arrivals.all_of(len(whole) - 5, theirs)
        # uvicorn empties this when the app takes what came of the body.
        await until(lambda: not theirs.cycle.body)
        cut.writer.transport.abort()
        await until(lambda: theirs not in fleet.connections and not theirs.tasks)
    await fleet.beat("whole")

    assert await ids(fleet) == {"whole"}


async def test_beats_of_a_limited_tenant_are_let_in_before_the_app_sees_them(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Fleet.over(store, clock, max_workers=2, max_beats_per_second=3) as limited:
        await limited.beat("first")
        seen: list[str] = []
        honest = admission.admit

        async def watched(*given: Any) -> None:
            seen.append("the app")
            await honest(*given)

        monkeypatch.setattr(admission, "admit", watched)
        statuses = [(await limited.beat("first")).status_code for _ in range(3)]

    assert statuses == [202, 202, 429]
    assert seen == ["the app"]


async def test_a_setting_sends_every_beat_through_the_app(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Fleet.over(store, clock, fast_path="off") as slow:
        await slow.beat("first")

        def refuse(*_: object) -> None:
            raise AssertionError("a connection let it in")

        monkeypatch.setattr(admission, "at_once", refuse)
        assert (await slow.beat("second")).status_code == 202
