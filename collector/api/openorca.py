"""The feed as the OpenOrca console listens to it: unnamed frames, a whole snapshot first."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from collector import __version__, openorca
from collector.api import auth
from collector.api.events import Stream, nothing
from collector.api.large import LargeResponse
from collector.api.parts import Parts
from collector.batches import Batch, Filter, Line, Lines, Snapshot, once
from collector.documents import Document, Question, frame
from collector.events import Channel
from collector.values import RosterQuery

_CONNECTED = frame(None, {"type": "runtime.status", "status": openorca.CONNECTED})


async def runtime_info(_request: Request) -> Response:
    """`GET /openorca/runtime-info`: what of that console works here."""
    return JSONResponse(openorca.runtime_info(__version__))


async def snapshot(request: Request) -> Response:
    """`GET /openorca/snapshot`: the whole fleet now."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    question = Question("openorca", principal.tenant_id, RosterQuery())
    async with AsyncExitStack() as held:
        document = await held.enter_async_context(parts.reads.document(question))
        # Its place is kept until the answer is sent.
        sent = held.pop_all()
    return LargeResponse(document.pieces, parts.reads.turns, sent)


async def stream(request: Request) -> Response:
    """`GET /openorca/events`: the whole fleet, and then every change.

    That console opens a new stream after an error, so none is ever resumed.
    """
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    if request.method == "HEAD":
        return Stream(nothing(), parts.reads.turns)
    subscription = await parts.feed.subscribe(
        principal, None, Filter(), snapshots="console", vitals=False
    )
    frames = _Telling(parts, subscription.channel).frames(subscription.batches())
    return Stream(frames, parts.reads.turns, subscription)


class _Figures:
    """The fleet's figures of one channel, which all of its consoles share.

    Each line is noted once, as it comes, and with it what a console has to hear of the figures.
    """

    def __init__(self, document: Document, channel: Channel) -> None:
        assert document.facts.standings is not None
        self._tally = openorca.Tally(document.facts.standings)
        self._n = document.position.head
        # Lines are missing that were cut off the log before they were read.
        self.is_torn = False
        # A channel that has read on already hands over what it has.
        if channel.has_lines_after(self._n):
            self.listen(channel.after(self._n).lines)
        channel.listeners.append(self.listen)

    @property
    def frame(self) -> bytes:
        return _fleet_frame(self._tally.health())

    def listen(self, lines: Sequence[Line]) -> None:
        for line in lines:
            # Lines up to here are in the document.
            if line.n > self._n:
                self.is_torn = self.is_torn or line.n > self._n + 1
                before = self._tally.health()
                self._note(line)
                after = self._tally.health()
                line.encoded[_Figures] = b"" if after == before else _fleet_frame(after)
                self._n = line.n

    def _note(self, line: Line) -> None:
        if line.type == "worker.removed":
            self._tally.drop(line.worker["agent_id"])
        else:
            self._tally.note(line.worker)


def _fleet_frame(health: dict[str, Any]) -> bytes:
    return frame(None, {"type": "fleet.updated", "fleetHealth": health})


_figures: WeakKeyDictionary[Channel, _Figures] = WeakKeyDictionary()


class _Telling:
    """One console's stream: what it was told, as far as the next frame depends on it."""

    def __init__(self, parts: Parts, channel: Channel) -> None:
        self._parts = parts
        self._channel = channel
        self._told_to = 0

    async def frames(self, batches: AsyncGenerator[Batch]) -> AsyncGenerator[bytes]:
        # Closed with this one, so that a snapshot's place is free as soon as its stream has ended.
        async with aclosing(batches):
            async for batch in batches:
                if isinstance(batch, Lines):
                    async for piece in self._tell(batch.lines):
                        yield piece
                        del piece
                elif isinstance(batch, Snapshot):
                    self._note(batch.document)
                    for piece in (*batch.document.pieces, _CONNECTED):
                        yield piece
                        del piece
                # While the stream waits for news, nothing keeps what it was sent.
                del batch

    def _note(self, document: Document) -> None:
        self._told_to = document.position.head
        figures = _figures.get(self._channel)
        if figures is not None and figures.is_torn:
            self._channel.listeners.remove(figures.listen)
        if figures is None or figures.is_torn:
            _figures[self._channel] = _Figures(document, self._channel)

    async def _tell(self, lines: Sequence[Line]) -> AsyncGenerator[bytes]:
        told = b""
        for line in lines:
            # Lines up to told_to are in a snapshot that was read after them.
            if line.n <= self._told_to:
                continue
            if line.type != "worker.removed":
                told += self._update(line)
                continue
            # Only a whole snapshot takes a node away; one stands for all removals before it.
            if told:
                yield told
            told = b""
            question = Question("console", self._channel.tenant_id, RosterQuery())
            async with self._parts.reads.document(question, stream=lambda: True) as document:
                self._note(document)
                for piece in document.pieces:
                    yield piece
        if told:
            yield told

    def _update(self, line: Line) -> bytes:
        """A console that began before the figures did hears of them with every line."""
        figures = line.encoded.get(_Figures)
        return once(line, _agent) + (_figures[self._channel].frame if figures is None else figures)


def _agent(line: Line) -> bytes:
    agent = openorca.node(line.worker, line.body["at"])
    return frame(None, {"type": "agent.updated", "agent": agent})
