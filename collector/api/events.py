"""The feed at the door: a stream for consoles, a long poll for scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from itertools import takewhile
from typing import Any

from pydantic_core import to_json
from sse_starlette import EventSourceResponse
from sse_starlette.sse import AppStatus
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from collector.api import auth, queries
from collector.api.large import SMALL_BYTES, LargeResponse, send_in_turns
from collector.api.parts import Parts
from collector.batches import Batch, Filter, Line, Lines, Snapshot, Vitals, once
from collector.documents import frame
from collector.errors import Overloaded
from collector.events import Subscription
from collector.turns import Turns
from contract.vocabulary import MAX_LAST, MAX_WAIT_SECONDS

# Streams end by themselves when the feed stops; the library would cut them in mid-sentence.
AppStatus.enable_automatic_graceful_drain = False

KEEPALIVE = b": keepalive\n\n"
KEEPALIVE_SECONDS = 15
SEND_SECONDS = 30
RETRY = b"retry: 2000\n\n"
FILTERS = ("agent_name", "project", "region")


async def stream(request: Request) -> Response:
    """`GET /events`: a snapshot, or what came after the cursor, and then every change."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    given = queries.single(request, (*FILTERS, "after"))
    cursor = request.headers.get("last-event-id") or given.get("after")
    if request.method == "HEAD":
        return Stream(nothing(), parts.reads.turns)
    subscription = await parts.feed.subscribe(principal, cursor, _filter(given))
    return Stream(_frames(subscription), parts.reads.turns, subscription)


async def poll(request: Request) -> Response:
    """`GET /v1/events`: what came after the cursor, waiting for it if need be."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    given = queries.single(request, (*FILTERS, "after", "last", "wait"))
    wait = queries.number(given, "wait", least=0, most=MAX_WAIT_SECONDS, default=0)
    last = queries.whole(given, "last", least=0, most=MAX_LAST, default=0)
    subscription = await parts.feed.subscribe(
        principal, given.get("after"), _filter(given), snapshots="poll", vitals=False, wait=wait
    )
    if "last" in given:
        subscription = subscription.rewound(last)
    async with AsyncExitStack() as held:
        held.callback(subscription.close)
        batches = await held.enter_async_context(aclosing(subscription.batches()))
        batch, cursor = await _first(batches, subscription.cursor)
        if cursor is None:
            raise Overloaded.stopping()
        events = _events(batch)
        ending = b'],"cursor":' + to_json(cursor) + b"}"
        # The place of a snapshot is kept until the answer is sent.
        sent = held.pop_all()
    return LargeResponse([b'{"events":[', *events, ending], parts.reads.turns, sent)


class Stream(EventSourceResponse):
    """An endless answer of frames that are encoded already.

    The library ends the tasks of a stream by cancelling them, and leaves some 175 objects of each
    to the garbage collector: hundreds of streams that ended within a second made it hold the event
    loop for 100 ms. Here the request's own task sends, and a stream that waits for news when its
    client goes ends by itself.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        turns: Turns,
        subscription: Subscription | None = None,
    ) -> None:
        super().__init__(frames, sep="\n")
        self._frames = frames
        self._turns = turns
        self._subscription = subscription
        # No keepalive comes between the parts of a frame.
        self._whole_frames = asyncio.Lock()
        self._has_gone = False
        self._is_stuck = False

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.current_task()
        assert sending is not None
        beside = [
            asyncio.create_task(self._end_when_gone(receive, sending)),
            asyncio.create_task(self._end_when_stuck(send, sending)),
        ]
        try:
            await self._stream_response(send)
        except asyncio.CancelledError:
            if not (self._has_gone or self._is_stuck):
                raise
            sending.uncancel()
        except TimeoutError:
            self._is_stuck = True
        finally:
            for task in beside:
                task.cancel()
            if self._subscription is not None:
                self._subscription.close()
        if self._is_stuck:
            raise ClientDisconnect

    async def _stream_response(self, send: Send) -> None:
        """Send what there is, as it is.

        The library gives each send a timeout of its own, which costs more than the send. Keepalives
        have one, and a reader that takes nothing keeps them waiting as well: that ends it.
        """
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        async with aclosing(self._frames) as frames:
            async for chunk in frames:
                await self._send(chunk, send)
                # While the stream waits for news, nothing keeps what it was sent.
                del chunk
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end_when_gone(self, receive: Receive, sending: asyncio.Task[Any]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._has_gone = True
        if self._subscription is None or not self._subscription.follower.end():
            sending.cancel()

    async def _end_when_stuck(self, send: Send, sending: asyncio.Task[Any]) -> None:
        """Send keepalives. A reader that takes none of them is gone for us."""
        keepalive = {"type": "http.response.body", "body": KEEPALIVE, "more_body": True}
        try:
            while True:
                await asyncio.sleep(KEEPALIVE_SECONDS)
                async with self._whole_frames, asyncio.timeout(SEND_SECONDS):
                    await send(keepalive)
        except TimeoutError:
            self._is_stuck = True
            sending.cancel()

    async def _send(self, chunk: bytes, send: Send) -> None:
        if len(chunk) <= SMALL_BYTES:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        else:
            async with self._whole_frames:
                await send_in_turns([chunk], self._turns, send, is_wanted=self._is_wanted)

    def _is_wanted(self) -> bool:
        return self._subscription is None or self._subscription.follower.is_wanted()


async def nothing() -> AsyncGenerator[bytes]:
    """For a HEAD, which is answered without following anything."""
    return
    yield b""


async def _first(
    batches: AsyncIterator[Batch], cursor: str | None
) -> tuple[Snapshot | Lines | None, str | None]:
    """The first batch with anything in it, and the cursor to go on from, whatever came of it."""
    async for batch in batches:
        assert not isinstance(batch, Vitals)
        if isinstance(batch, Snapshot):
            return batch, batch.document.cursor
        cursor = batch.cursor
        if batch.lines:
            return batch, cursor
    return None, cursor


def _events(batch: Snapshot | Lines | None) -> list[bytes]:
    """The members of a poll's list."""
    match batch:
        case Lines(lines):
            return [to_json([line.body for line in lines])[1:-1]]
        case Snapshot(document):
            return document.pieces
    return []


async def _frames(subscription: Subscription) -> AsyncGenerator[bytes]:
    yield RETRY
    # Closed with this one, so that a snapshot's place is free as soon as its stream has ended.
    async with aclosing(subscription.batches()) as batches:
        async for batch in batches:
            for piece in unended(subscription, _pieces(batch)):
                yield piece
                del piece
            # While the stream waits for news, nothing keeps what it was sent.
            del batch


def unended(subscription: Subscription, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces, as long as the key lasts: a large snapshot may take longer than that."""
    return takewhile(lambda _: subscription.follower.is_wanted(), pieces)


def _pieces(batch: Batch) -> list[bytes]:
    match batch:
        case Lines(lines):
            return [once(batch, _lines_frames)] if lines else []
        case Snapshot(document) | Vitals(document):
            return document.pieces


def _lines_frames(batch: Lines) -> bytes:
    return b"".join(once(line, _line_frame) for line in batch.lines)


def _line_frame(line: Line) -> bytes:
    return frame(line.type, line.body, line.cursor)


def _filter(given: dict[str, str]) -> Filter:
    return Filter(**{name: queries.text(name, given) for name in FILTERS})
