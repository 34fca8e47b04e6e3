"""The feed as one writes it with sse-starlette: `python -m benchmarks.plain_sse CHANGES_A_SECOND`.

Each subscriber has a queue and an `EventSourceResponse`. A timer puts the change into every queue;
its JSON is made once. Frames and server are the collector's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

from pydantic_core import to_json
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from benchmarks.exchange import serve
from benchmarks.fleet import BODY
from collector.app import create_app
from collector.batches import Line
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import Event

Frame = dict[str, Any]


class Subscribers:
    """A queue for each."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[Frame]] = set()

    async def subscribe(self, _request: Request) -> Response:
        return EventSourceResponse(self._frames())

    async def _frames(self) -> AsyncIterator[Frame]:
        queue: asyncio.Queue[Frame] = asyncio.Queue()
        self._queues.add(queue)
        # The answer begins with the first frame; who opens many streams waits for that.
        yield {"comment": "welcome"}
        try:
            while True:
                yield await queue.get()
        finally:
            self._queues.discard(queue)

    async def publish_for_ever(self, a_second: int) -> None:
        due = time.monotonic()
        for n in count(1):
            # By the clock; what it can't keep up with is not made up for.
            due = max(due + 1 / a_second, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            frame = _frame(n)
            for queue in self._queues:
                queue.put_nowait(frame)


def _frame(n: int) -> Frame:
    worker = {**BODY, "last_seen": 1, "first_seen": 1, "active_sessions": n}
    line = Line(Event(n, "changed", time.time_ns() // 1000, None, "actor", worker), "epoch")
    return {"event": line.type, "id": line.cursor, "data": to_json(line.body).decode()}


def build(a_second: int, settings: Settings, store: Store) -> ASGIApp:
    subscribers = Subscribers()

    @asynccontextmanager
    async def publishing(_app: Starlette) -> AsyncIterator[None]:
        publisher = asyncio.create_task(subscribers.publish_for_ever(a_second))
        yield
        publisher.cancel()

    app = Starlette(routes=[Route("/events", subscribers.subscribe)], lifespan=publishing)
    # The server stops its app through these.
    app.state.parts = create_app(settings, store=store).state.parts
    return app


if __name__ == "__main__":
    serve(partial(build, int(sys.argv[1])))
