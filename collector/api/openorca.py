"""The feed as the OpenOrca console listens to it: unnamed frames, a whole snapshot first."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from collector import __version__, openorca
from collector.api import auth
from collector.api.events import Stream, frame, nothing
from collector.api.parts import Parts
from collector.batches import Batch, Filter, Line, Lines, Snapshot, once
from collector.values import RosterQuery, Worker
from collector.workers import announced

_CONNECTED = frame(None, {"type": "runtime.status", "status": openorca.CONNECTED})


async def runtime_info(_request: Request) -> Response:
    """`GET /openorca/runtime-info`: what of that console works here."""
    return JSONResponse(openorca.runtime_info(__version__))


async def snapshot(request: Request) -> Response:
    """`GET /openorca/snapshot`: the whole fleet now."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    now = parts.clock.now()
    found = await parts.store.roster(principal.tenant_id, RosterQuery(), now=now)
    workers = openorca.roster(found, now)
    body = openorca.snapshot(workers, openorca.Tally(workers), now)
    return Response(to_json(body), media_type="application/json")


async def stream(request: Request) -> Response:
    """`GET /openorca/events`: the whole fleet, and then every change.

    That console opens a new stream after an error, so none is ever resumed.
    """
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    if request.method == "HEAD":
        return Stream(nothing(), None)
    subscription = await parts.feed.subscribe(principal, None, Filter(), vitals=False)
    frames = _Telling(parts, principal.tenant_id).frames(subscription.batches())
    return Stream(frames, subscription)


class _Telling:
    """One console's stream: what it was told, as far as the next frame depends on it."""

    def __init__(self, parts: Parts, tenant_id: str) -> None:
        self._parts = parts
        self._tenant_id = tenant_id
        self._tally = openorca.Tally()
        self._told_to = 0

    async def frames(self, batches: AsyncIterator[Batch]) -> AsyncGenerator[bytes]:
        async for batch in batches:
            match batch:
                case Snapshot(_, at, workers):
                    yield self._replace(workers, at) + _CONNECTED
                case Lines(lines):
                    # Lines up to told_to are in a snapshot that was read after them.
                    news = [await self._tell(line) for line in lines if line.n > self._told_to]
                    if news:
                        yield b"".join(news)

    async def _tell(self, line: Line) -> bytes:
        if line.type == "worker.removed":
            return await self._read_anew()
        if not self._tally.note(line.worker):
            return once(line, _update)
        health = {"type": "fleet.updated", "fleetHealth": self._tally.health()}
        return once(line, _update) + frame(None, health)

    async def _read_anew(self) -> bytes:
        """Only a whole snapshot takes a node away; one stands for all removals before it."""
        now = self._parts.clock.now()
        workers, position = await self._parts.store.snapshot(
            self._tenant_id, RosterQuery(), now=now
        )
        self._told_to = position.head
        return self._replace(workers, now)

    def _replace(self, found: list[Worker], now: int) -> bytes:
        workers = openorca.roster(found, now, see=lambda worker, _now: announced(worker))
        self._tally = openorca.Tally(workers)
        whole = openorca.snapshot(workers, self._tally, now)
        return frame(None, {"type": "snapshot.replace", "snapshot": whole})


def _update(line: Line) -> bytes:
    agent = openorca.node(line.worker, line.body["at"])
    return frame(None, {"type": "agent.updated", "agent": agent})
