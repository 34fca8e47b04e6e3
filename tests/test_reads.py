"""Reads of whole rosters: a share for each tenant, one document for equal questions."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from collector import documents, places, reads
from collector import reader as our_end
from collector.api import large
from collector.documents import Document, Question
from collector.errors import Overloaded, StoreUnavailable, TooManyReads
from collector.reader import Reader
from collector.reads import SMALL_WORKERS, Reads
from collector.store.protocol import Store
from collector.values import NO_GAP, RosterQuery, Walk
from tests.factories import at, beat
from tests.fleet import Fleet, TestClock
from tests.test_events import following
from tests.test_wire import line

pytestmark = pytest.mark.anyio

MANY = SMALL_WORKERS + 20
KINDS: tuple[documents.Kind, ...] = (
    "roster",
    "snapshot",
    "poll",
    "vitals",
    "openorca",
    "console",
)


async def populate(store: Store, count: int, tenant_id: str = "acme") -> None:
    beats = [beat(f"w{n:04}", tenant_id=tenant_id, host=f"h{n % 3}") for n in range(count)]
    await store.commit(beats, now=at(0), gone=NO_GAP)


@pytest.fixture
async def reader(store: Store) -> AsyncIterator[Reader]:
    running = Reader(store.url)
    yield running
    await running.close()


@asynccontextmanager
async def shares(store: Store, clock: TestClock, **limits: int) -> AsyncIterator[Reads]:
    limits = {"at_once": 2, "megabytes": 1} | limits
    made = Reads(store, clock, Reader(store.url), **limits)
    try:
        yield made
    finally:
        made.stop()
        await made.close()


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


def whole(tenant_id: str = "acme") -> Question:
    return Question("roster", tenant_id, RosterQuery())


# What the documents are.


@pytest.mark.parametrize("kind", KINDS)
async def test_another_process_makes_the_same_document(
    store: Store, reader: Reader, kind: documents.Kind
) -> None:
    await populate(store, MANY)
    question = Question(kind, "acme", RosterQuery())

    there = await reader.ask(question, now=at(50))
    here = documents.make(question, await documents.find(store, question, now=at(50)), now=at(50))

    assert (there.pieces, there.made_at) == (here.pieces, here.made_at)
    assert tuple(there.facts) == tuple(here.facts)
    assert here.facts.workers == MANY


@pytest.mark.parametrize(
    "query",
    [
        RosterQuery(limit=7),
        RosterQuery(limit=7, after=Walk(at(0), at(0), "w0010")),
        RosterQuery(statuses=("idle", "offline"), agent_name="agent", seen_since=1),
    ],
)
async def test_a_question_means_the_same_to_another_process(query: RosterQuery) -> None:
    question = Question("roster", "acme", query)

    assert Question.unpacked(*question.packed()) == question


async def test_a_page_of_a_large_roster_says_where_the_next_one_begins(fleet: Fleet) -> None:
    await populate(fleet.store, 3 * MANY)

    names, cursor = [], None
    for _ in range(3):
        query: dict[str, Any] = {"limit": MANY} | ({"cursor": cursor} if cursor else {})
        page = (await fleet.get("/v1/agents", **query)).json()
        names += [worker["agent_id"] for worker in page["workers"]]
        cursor = page["next_cursor"]

    assert cursor is None
    assert len(set(names)) == len(names) == 3 * MANY


# Who makes them.


async def processes_of(fleet: Fleet) -> list[Any]:
    processes: list[Any] = fleet.app.state.parts.reads._reader._processes
    return processes


async def test_a_small_fleet_starts_no_process(fleet: Fleet) -> None:
    await populate(fleet.store, SMALL_WORKERS)

    assert len(await fleet.roster()) == SMALL_WORKERS
    assert await processes_of(fleet) == []


async def test_a_fleet_that_grew_is_read_by_another_process(fleet: Fleet) -> None:
    await populate(fleet.store, SMALL_WORKERS)
    await fleet.roster()
    await populate(fleet.store, MANY)
    await fleet.roster()

    assert len(await fleet.roster()) == MANY
    assert len(await processes_of(fleet)) == 1


async def test_a_process_that_was_killed_is_replaced(store: Store, reader: Reader) -> None:
    await populate(store, 3)
    await reader.ask(whole(), now=at(0))
    os.kill(reader._processes[-1].pid, signal.SIGKILL)
    await eventually(lambda: reader._link is not None and not reader._link.is_open)

    document = await reader.ask(whole(), now=at(0))

    assert document.facts.workers == 3


async def test_whoever_waits_for_a_process_that_dies_hears_it(store: Store, reader: Reader) -> None:
    await populate(store, 3)
    await reader.ask(whole(), now=at(0))
    os.kill(reader._processes[-1].pid, signal.SIGSTOP)
    waiting = asyncio.create_task(reader.ask(whole(), now=at(0)))
    await asyncio.sleep(0)
    os.kill(reader._processes[-1].pid, signal.SIGKILL)

    with pytest.raises(StoreUnavailable, match="has ended"):
        await waiting


async def test_a_process_that_hangs_is_given_up(
    store: Store, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await populate(store, 3)
    await reader.ask(whole(), now=at(0))
    hung = reader._processes[-1]
    os.kill(hung.pid, signal.SIGSTOP)
    monkeypatch.setattr(our_end, "SILENT_SECONDS", 0.2)

    with pytest.raises(StoreUnavailable, match="does not answer"):
        await reader.ask(whole(), now=at(0))

    monkeypatch.undo()
    assert (await reader.ask(whole(), now=at(0))).facts.workers == 3
    assert hung.poll() == -signal.SIGKILL


# One document for equal questions, never older than any of them.


async def test_equal_questions_that_wait_together_are_read_once(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await populate(store, 3)
    found = []
    find = documents.find

    async def counted(*args: Any, **kwargs: Any) -> Any:
        found.append(args)
        return await find(*args, **kwargs)

    monkeypatch.setattr(documents, "find", counted)
    async with shares(store, clock, at_once=20) as share:

        async def ask() -> Document:
            async with share.document(whole()) as document:
                return document

        answers = await asyncio.gather(*(ask() for _ in range(20)))

    assert len(found) == 1
    assert {each.facts.workers for each in answers} == {3}


async def test_a_question_is_never_answered_by_an_older_reading(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await populate(store, 3)
    begun, let_go = asyncio.Event(), asyncio.Event()
    find = documents.find

    async def held(*args: Any, **kwargs: Any) -> Any:
        answer = await find(*args, **kwargs)
        begun.set()
        await let_go.wait()
        return answer

    monkeypatch.setattr(documents, "find", held)
    async with shares(store, clock) as share:

        async def ask() -> int:
            async with share.document(whole()) as document:
                return document.facts.workers

        first = asyncio.create_task(ask())
        await begun.wait()
        await populate(store, 4)
        second = asyncio.create_task(ask())
        await asyncio.sleep(0)
        let_go.set()

        assert (await first, await second) == (3, 4)


async def test_whoever_goes_away_takes_the_document_from_nobody(
    store: Store, clock: TestClock
) -> None:
    await populate(store, MANY)
    async with shares(store, clock) as share:

        async def ask() -> int:
            async with share.document(whole()) as document:
                return document.facts.workers

        gone, stays = asyncio.create_task(ask()), asyncio.create_task(ask())
        await asyncio.sleep(0)
        gone.cancel()

        assert await stays == MANY
        assert (share.under_way, share.bytes_under_way) == (0, 0)


async def test_a_reading_that_nobody_waits_for_any_more_leaves_no_trace(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await populate(store, 3)
    made = []
    make = documents.make

    def counted(*args: Any, **kwargs: Any) -> Document:
        made.append(args)
        return make(*args, **kwargs)

    monkeypatch.setattr(documents, "make", counted)
    async with shares(store, clock, at_once=300) as share:

        async def ask(n: int) -> None:
            question = Question("roster", "acme", RosterQuery(project=f"p{n}"))
            async with share.document(question):
                raise AssertionError("it was cancelled before")

        gone = [asyncio.create_task(ask(n)) for n in range(300)]
        await asyncio.sleep(0)
        for each in gone:
            each.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        await eventually(lambda: share._desks == {})

    assert (share.under_way, share.bytes_under_way, share._joinable) == (0, 0, {})
    assert len(made) <= 1


# Places.


async def test_a_tenant_has_so_many_places_and_another_its_own(
    store: Store, clock: TestClock
) -> None:
    async with shares(store, clock, at_once=2) as share, AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(share.document(whole("acme")))
        third = asyncio.create_task(held.enter_async_context(share.document(whole("acme"))))
        await asyncio.sleep(0)

        async with share.document(whole("globex")):
            assert share.under_way == 3
            assert not third.done()
        third.cancel()


async def test_tenants_take_turns_in_a_queue(store: Store, clock: TestClock) -> None:
    async with shares(store, clock, at_once=2) as share:

        async def ask(tenant_id: str) -> None:
            async with share.document(whole(tenant_id)):
                pass

        async with AsyncExitStack() as held:
            # All places of all tenants are taken.
            for n in range(2 * places.SHARES_IN_ALL):
                taken = share.document(whole(f"other-{n}"))
                await held.enter_async_context(taken)
            waiting = [asyncio.create_task(ask("acme")) for _ in range(5)]
            await asyncio.sleep(0)
            waiting.append(asyncio.create_task(ask("globex")))
            await asyncio.sleep(0)
            left = held.pop_all()
            for _ in range(2):
                share._places[False].under_way -= 1
            share._places[False]._hand_out()
            held_by = {
                tenant: each.under_way for (tenant, _), each in share._places[False]._shares.items()
            }
            assert (held_by["acme"], held_by["globex"]) == (1, 1)
            share._places[False].under_way += 2
            await left.aclose()
        await asyncio.gather(*waiting)

        assert share.under_way == 0


async def test_too_many_who_wait_are_refused_at_once(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "MAX_WAITING", 1)
    async with shares(store, clock, at_once=1) as share, share.document(whole()):
        waiting = asyncio.create_task(asked(share))
        await asyncio.sleep(0)

        with pytest.raises(TooManyReads):
            async with share.document(whole()):
                pass
        waiting.cancel()


async def asked(share: Reads) -> None:
    async with share.document(whole()):
        pass


async def test_whoever_waits_too_long_is_refused_and_leaves_no_trace(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shares(store, clock, at_once=1) as share:
        async with share.document(whole()):
            with monkeypatch.context() as hasty:
                hasty.setattr(reads, "WAIT_SECONDS", 0.01)
                with pytest.raises(TooManyReads):
                    await asked(share)
        async with share.document(whole()):
            assert share.under_way == 1

        assert share.under_way == 0
        assert share._places[False]._shares == {}


async def test_bytes_that_are_not_sent_keep_a_tenant_from_another_large_document(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await populate(store, MANY)
    monkeypatch.setattr(reads, "MEGABYTE", 1)
    async with shares(store, clock, megabytes=20_000) as share, share.document(whole()) as document:
        assert share.bytes_under_way == document.size > 20_000
        with monkeypatch.context() as hasty:
            hasty.setattr(reads, "WAIT_SECONDS", 0.01)
            with pytest.raises(TooManyReads):
                await asked(share)

        await populate(store, MANY, "globex")
        async with share.document(whole("globex")) as other:
            assert other.facts.workers == MANY


async def test_a_stream_waits_as_long_as_it_is_wanted(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "WAIT_SECONDS", 0)
    monkeypatch.setattr(places, "LOOK_SECONDS", 0.01)
    is_wanted = True

    async with shares(store, clock, at_once=1) as share:

        async def stream() -> None:
            async with share.document(whole(), is_wanted=lambda: is_wanted):
                raise AssertionError("it was refused before")

        async with share.document(whole(), is_wanted=lambda: True):
            waiting = asyncio.create_task(stream())
            await asyncio.wait([waiting], timeout=0.05)
            assert not waiting.done()
            is_wanted = False
            with pytest.raises(Overloaded):
                await waiting


async def test_a_stop_ends_every_wait_at_once(store: Store, clock: TestClock) -> None:
    async with shares(store, clock, at_once=1) as share, share.document(whole()):
        waiting = asyncio.create_task(asked(share))
        await asyncio.sleep(0)

        share.stop()

        with pytest.raises(Overloaded):
            await waiting
        with pytest.raises(Overloaded):
            async with share.document(whole()):
                pass


# Over HTTP.


@pytest.mark.parametrize(
    "lengths", [[], [0], [3], [4], [5], [1, 2], [2, 2, 9, 0, 1], [12], [1] * 9]
)
def test_parts_are_the_same_bytes_in_even_lengths(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "PART_BYTES", 4)
    pieces = [bytes([n]) * length for n, length in enumerate(lengths)]

    cut = list(large.parts(pieces))

    assert b"".join(cut) == b"".join(pieces)
    assert [len(each) for each in cut[:-1]] == [4] * (len(cut) - 1)
    assert all(cut)


async def test_a_read_too_many_is_answered_429(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "MAX_WAITING", 0)
    async with Fleet.over(store, clock, reads=1) as fleet:
        await fleet.beat("a")
        share = fleet.app.state.parts.reads
        async with share.document(whole()):
            for path in ("/v1/agents", "/openorca/snapshot", "/v1/events"):
                refused = await fleet.get(path)
                assert (refused.status_code, refused.json()["code"]) == (429, "too_many_reads")
                assert refused.headers["retry-after"] == "1"

            assert (await fleet.get("/v1/agents", tenant="globex")).status_code == 200
            assert (await fleet.beat("a")).status_code == 202
        assert (await fleet.get("/v1/agents")).status_code == 200


@pytest.mark.parametrize("path", ["/events", "/openorca/events"])
async def test_a_stream_whose_key_ends_while_it_waits_ends_in_good_order(
    store: Store, clock: TestClock, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Fleet.over(store, clock, reads=1) as fleet:
        share, feed = fleet.app.state.parts.reads, fleet.app.state.parts.feed
        headers = await fleet.headers()
        async with share.document(whole(), is_wanted=lambda: True), line(fleet) as caller:
            request = f"GET {path} HTTP/1.1\r\nAuthorization: {headers['Authorization']}\r\n\r\n"
            caller.send(request.encode())
            await eventually(lambda: bool(feed.followers))

            feed._end(lambda _: True)

            sent = await caller.reader.readuntil(b"0\r\n\r\n")
        await eventually(lambda: feed.followers == 0)

    assert b"worker" not in sent.partition(b"\r\n\r\n")[2]
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


async def test_a_stream_whose_key_ends_while_its_snapshot_is_made_gets_none(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "LOOK_SECONDS", 0.01)
    begun, feed = asyncio.Event(), fleet.app.state.parts.feed

    async def endless(*_: Any, **__: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(documents, "find", endless)
    key = await fleet.key()
    async with line(fleet) as caller:
        caller.send(f"GET /events HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        await begun.wait()

        feed._end(lambda _: True)

        assert b"snapshot" not in await caller.reader.readuntil(b"0\r\n\r\n")


async def test_a_stream_whose_key_ends_while_its_snapshot_is_sent_gets_no_more_of_it(
    fleet: Fleet,
) -> None:
    share, feed = fleet.app.state.parts.reads, fleet.app.state.parts.feed
    await populate(fleet.store, 20_000)
    key = await fleet.key()
    async with line(fleet) as caller:
        caller.send(f"GET /events HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        caller.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await eventually(lambda: share.bytes_under_way > 0)
        whole_size = share.bytes_under_way

        feed._end(lambda _: True)
        caller.reader._transport.resume_reading()  # type: ignore[attr-defined]

        received = 0
        async with asyncio.timeout(20):
            while not (chunk := await caller.reader.read(1 << 20)).endswith(b"0\r\n\r\n"):
                received += len(chunk)

    assert received < whole_size
    assert share.bytes_under_way == 0


async def test_a_stop_refuses_those_who_wait_for_a_process_that_hangs(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await populate(fleet.store, MANY)
    await fleet.roster()
    monkeypatch.setattr(reads, "STOP_SECONDS", 0)
    os.kill((await processes_of(fleet))[-1].pid, signal.SIGSTOP)
    waiting = asyncio.create_task(fleet.get("/v1/agents"))
    await eventually(lambda: bool(fleet.app.state.parts.reads.under_way))

    fleet.app.state.parts.reads.stop()

    answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")


async def test_a_reader_that_takes_nothing_loses_its_place(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "PART_SECONDS", 0.05)
    share = fleet.app.state.parts.reads
    await populate(fleet.store, 20_000)
    key = await fleet.key()
    async with line(fleet) as caller:
        caller.send(f"GET /v1/agents HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        caller.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await eventually(lambda: share.bytes_under_way > 0)

        await eventually(lambda: share.under_way == 0)

    assert share.bytes_under_way == 0


async def test_a_stream_that_has_had_its_snapshot_keeps_nothing_of_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.beat("a")
    made: list[weakref.ref[Document]] = []
    make = documents.make

    def noted(*args: Any, **kwargs: Any) -> Document:
        document = make(*args, **kwargs)
        made.append(weakref.ref(document))
        return document

    monkeypatch.setattr(documents, "make", noted)
    share = fleet.app.state.parts.reads
    key = await fleet.key()
    async with following(fleet) as stream, line(fleet) as console:
        await stream.next()
        console.send(
            f"GET /openorca/events HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        )
        await console.reader.readuntil(b"runtime.status")
        await eventually(lambda: share.under_way == 0)
        gc.collect()

        assert len(made) == 2
        assert [each() for each in made] == [None, None]


async def test_streams_that_come_back_together_share_the_pages_of_the_log(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        await fleet.beat(f"w{n}")
    cursor = (await fleet.get("/v1/events", last=3)).json()["events"][0]["cursor"]
    pages = []
    read, feed = fleet.store.events, fleet.app.state.parts.feed

    async def counted(*args: Any, **kwargs: Any) -> Any:
        pages.append(kwargs)
        await eventually(lambda: feed.followers == 20)
        return await read(*args, **kwargs)

    monkeypatch.setattr(fleet.store, "events", counted)

    async def resumed() -> list[str]:
        async with following(fleet, last=cursor) as stream:
            return [(await stream.next())["data"]["worker"]["agent_id"] for _ in range(2)]

    told = await asyncio.gather(*(resumed() for _ in range(20)))

    assert told == [["w3", "w4"]] * 20
    assert len(pages) == 1
