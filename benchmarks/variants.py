"""What the collector is measured against: `python -m benchmarks.variants no-op|one-by-one`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from benchmarks.exchange import Build, serve
from collector.api.parts import Parts
from collector.app import create_app
from collector.intake import Intake
from collector.metrics import Metrics
from collector.settings import Settings
from collector.store.open import is_embedded, store_for
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat

CONNECTIONS = 16


class OneByOne(Intake):
    """Each beat is a commit of its own, on one of several connections to the store."""

    def __init__(self, stores: list[Store], *args: Any, **kwargs: Any) -> None:
        super().__init__(stores[0], *args, **kwargs)
        self._idle: asyncio.Queue[Store] = asyncio.Queue()
        for store in stores:
            self._idle.put_nowait(store)

    async def submit(self, beat: Beat) -> None:
        store = await self._idle.get()
        try:
            await store.commit([beat], now=self._clock.now(), gone=NO_GAP)
        finally:
            self._idle.put_nowait(store)


def one_by_one(settings: Settings, store: Store) -> ASGIApp:
    """The collector, all of it but the group commit."""
    app = create_app(settings, store=store)
    parts: Parts = app.state.parts
    # A store has one writing connection. SQLite has one writer at a time whatever we do.
    more = [] if is_embedded(settings) else [store_for(settings) for _ in range(CONNECTIONS - 1)]
    intake = OneByOne([store, *more], parts.clock, Metrics(), limit=settings.queue_limit)
    app.state.parts = replace(parts, intake=intake)
    return app


def no_op(settings: Settings, store: Store) -> ASGIApp:
    """The ceiling: a Starlette function route that answers at once."""

    async def accept(_request: Request) -> Response:
        return Response(b'{"status":"accepted"}', 202, media_type="application/json")

    app = Starlette(routes=[Route("/v1/agents/heartbeat", accept, methods=["POST"])])
    # The server stops its app through these.
    app.state.parts = create_app(settings, store=store).state.parts
    return app


BUILDS: dict[str, Build] = {"no-op": no_op, "one-by-one": one_by_one}

if __name__ == "__main__":
    serve(BUILDS[sys.argv[1]])
