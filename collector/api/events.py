"""The feed at the door: a stream for consoles, a long poll for scripts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, closing
from typing import Any

from pydantic_core import to_json
from sse_starlette import EventSourceResponse
from sse_starlette.sse import AppStatus
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from collector.api import auth, queries
from collector.api.parts import Parts
from collector.batches import Batch, Filter, Line, Lines, Snapshot, Vitals, once
from collector.errors import Overloaded
from collector.events import Subscription
from collector.values import SECOND, Worker
from collector.workers import announced, project, project_vitals
from contract.vocabulary import MAX_LAST, MAX_WAIT_SECONDS

# Streams end by themselves when the feed stops; the library would cut them in mid-sentence.
AppStatus.enable_automatic_graceful_drain = False

KEEPALIVE_SECONDS = 15
SEND_SECONDS = 30
RETRY = b"retry: 2000\n\n"
CHUNK = 500
FILTERS = ("agent_name", "project", "region")


async def stream(request: Request) -> Response:
    """`GET /events`: a snapshot, or what came after the cursor, and then every change."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    given = queries.single(request, (*FILTERS, "after"))
    cursor = request.headers.get("last-event-id") or given.get("after")
    if request.method == "HEAD":
        return Stream(nothing(), None)
    subscription = await parts.feed.subscribe(principal, cursor, _filter(given))
    return Stream(_frames(subscription.batches()), subscription)


async def poll(request: Request) -> Response:
    """`GET /v1/events`: what came after the cursor, waiting for it if need be."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    given = queries.single(request, (*FILTERS, "after", "last", "wait"))
    wait = queries.number(given, "wait", least=0, most=MAX_WAIT_SECONDS, default=0)
    last = queries.whole(given, "last", least=0, most=MAX_LAST, default=0)
    subscription = await parts.feed.subscribe(
        principal, given.get("after"), _filter(given), vitals=False, wait=wait
    )
    if "last" in given:
        subscription = subscription.rewound(last)
    batch, cursor = await _first(subscription)
    if cursor is None:
        raise Overloaded("The collector is stopping.")
    return Response(
        to_json({"events": list(_bodies(batch)), "cursor": cursor}), media_type="application/json"
    )


class Stream(EventSourceResponse):
    """An endless answer of frames that are encoded already."""

    def __init__(self, frames: AsyncGenerator[bytes], subscription: Subscription | None) -> None:
        super().__init__(frames, ping=KEEPALIVE_SECONDS, send_timeout=SEND_SECONDS, sep="\n")
        self._frames = frames
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._subscription is not None:
                self._subscription.close()

    async def _stream_response(self, send: Send) -> None:
        """Send what there is, as it is.

        The library gives each send a timeout of its own, which costs more than the send. Keepalives
        have one too, and a reader that takes nothing keeps them waiting as well: that ends it.
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
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        async with self._send_lock:
            self.active = False
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def nothing() -> AsyncGenerator[bytes]:
    """For a HEAD, which is answered without following anything."""
    return
    yield b""


async def _first(subscription: Subscription) -> tuple[Snapshot | Lines | None, str | None]:
    """The first batch with anything in it, and the cursor to go on from, whatever came of it."""
    cursor = subscription.cursor
    with closing(subscription):
        async for batch in subscription.batches():
            assert not isinstance(batch, Vitals)
            cursor = batch.cursor
            if isinstance(batch, Snapshot) or batch.lines:
                return batch, cursor
    return None, cursor


def _bodies(batch: Snapshot | Lines | None) -> Iterable[dict[str, Any]]:
    match batch:
        case Lines(lines):
            return (line.body for line in lines)
        case Snapshot():
            return _snapshot_chunks(batch)
    return ()


async def _frames(batches: AsyncIterator[Batch]) -> AsyncGenerator[bytes]:
    yield RETRY
    async for batch in batches:
        match batch:
            case Lines(lines):
                if lines:
                    yield once(batch, _lines_frames)
            case Snapshot(cursor):
                for chunk in _snapshot_chunks(batch):
                    # Only the last chunk is a place to resume from.
                    yield frame("snapshot", chunk, None if chunk["more"] else cursor)
            case Vitals():
                yield once(batch, _vitals_frames)


def _lines_frames(batch: Lines) -> bytes:
    return b"".join(once(line, _line_frame) for line in batch.lines)


def _line_frame(line: Line) -> bytes:
    return frame(line.type, line.body, line.cursor)


def _vitals_frames(vitals: Vitals) -> bytes:
    return b"".join(
        frame(
            "vitals",
            {
                "type": "vitals",
                "at": vitals.at / SECOND,
                "workers": [project_vitals(worker) for worker in chunk],
            },
        )
        for chunk in _chunks(vitals.workers)
    )


def _snapshot_chunks(snapshot: Snapshot) -> Iterable[dict[str, Any]]:
    chunks = _chunks(snapshot.workers) or [[]]
    for place, chunk in enumerate(chunks, 1):
        yield {
            "type": "snapshot",
            "cursor": snapshot.cursor,
            "at": snapshot.at / SECOND,
            "workers": [project(worker, snapshot.at, announced(worker)) for worker in chunk],
            "more": place < len(chunks),
        }


def _chunks(workers: list[Worker]) -> list[list[Worker]]:
    return [workers[start : start + CHUNK] for start in range(0, len(workers), CHUNK)]


def frame(event: str | None, body: dict[str, Any], cursor: str | None = None) -> bytes:
    """One event of a stream; unnamed and without an id where those are None."""
    name = b"" if event is None else f"event: {event}\n".encode()
    place = b"" if cursor is None else f"id: {cursor}\n".encode()
    return name + place + b"data: " + to_json(body) + b"\n\n"


def _filter(given: dict[str, str]) -> Filter:
    return Filter(**{name: queries.text(name, given) for name in FILTERS})
