"""The feed as the OpenOrca console listens to it: unnamed frames, a whole snapshot first."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from collector import __version__, openorca
from collector.api import auth
from collector.api.events import Stream, nothing, unended
from collector.api.large import LargeResponse, held_document
from collector.api.parts import Parts
from collector.batches import Batch, Filter, Line, Lines, Snapshot, once
from collector.channels import ENDS_STREAMS, Channel
from collector.documents import Document, Question, frame
from collector.events import Subscription
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
    document, held = await held_document(parts.reads, question)
    return LargeResponse(document.pieces, parts.reads.turns, held)


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
    frames = _Telling(parts, subscription).frames()
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

    def __init__(self, parts: Parts, subscription: Subscription) -> None:
        self._parts = parts
        self._subscription = subscription
        self._channel = subscription.channel
        self._told_to = 0

    async def frames(self) -> AsyncGenerator[bytes]:
        # Closed with this one, so that a snapshot's place is free as soon as its stream has ended.
        async with aclosing(self._subscription.batches()) as batches:
            async for batch in batches:
                async with aclosing(self._pieces(batch)) as pieces:
                    async for piece in pieces:
                        yield piece
                        del piece
                # While the stream waits for news, nothing keeps what it was sent.
                del batch, pieces

    async def _pieces(self, batch: Batch) -> AsyncGenerator[bytes]:
        if isinstance(batch, Snapshot):
            self._note(batch.document)
            for piece in unended(self._subscription, (*batch.document.pieces, _CONNECTED)):
                yield piece
        elif isinstance(batch, Lines):
            async with aclosing(self._tell(batch.lines)) as told:
                async for piece in told:
                    yield piece

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
            is_wanted = self._subscription.follower.is_wanted
            try:
                async with self._parts.reads.document(question, is_wanted=is_wanted) as document:
                    self._note(document)
                    for piece in unended(self._subscription, document.pieces):
                        yield piece
            except ENDS_STREAMS:
                self._subscription.end()
                return
        if told:
            yield told

    def _update(self, line: Line) -> bytes:
        """A console that began before the figures did hears of them with every line."""
        figures = line.encoded.get(_Figures)
        return once(line, _agent) + (_figures[self._channel].frame if figures is None else figures)


def _agent(line: Line) -> bytes:
    agent = openorca.node(line.worker, line.body["at"])
    return frame(None, {"type": "agent.updated", "agent": agent})
