"""What the collector is measured against: `python -m benchmarks.variants NAME`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import create_async_engine
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
from collector.store.cloud import COMMIT
from collector.store.open import is_embedded, store_for
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat

CONNECTIONS = 16


class Prepared(Intake):
    """Each beat is a commit of its own, prepared, on one of several connections to the store."""

    def __init__(self, stores: list[Store], *args: Any, **kwargs: Any) -> None:
        super().__init__(stores[0], *args, **kwargs)
        self._idle: asyncio.Queue[Store] = asyncio.Queue()
        for store in stores:
            self._idle.put_nowait(store)

    def enter(self, beat: Beat) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._commit_alone(beat))

    async def _commit_alone(self, beat: Beat) -> None:
        store = await self._idle.get()
        try:
            await store.commit([beat], now=self._clock.now(), gone=NO_GAP)
        finally:
            self._idle.put_nowait(store)


class Core(Intake):
    """Each beat is a commit of its own through SQLAlchemy Core and its pool, as one writes it."""

    def __init__(self, url: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine = create_async_engine(url, pool_size=CONNECTIONS)

    def enter(self, beat: Beat) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._commit_alone(beat))

    async def _commit_alone(self, beat: Beat) -> None:
        columns = tuple([value] for value in beat)
        async with self._engine.begin() as conn:
            await conn.exec_driver_sql(COMMIT, (*columns, NO_GAP, self._clock.now()))


def one_by_one(settings: Settings, store: Store) -> ASGIApp:
    """The collector, all of it but the group commit."""
    if is_embedded(settings):
        return prepared(settings, store)
    return _with(
        settings,
        store,
        lambda parts: Core(
            settings.store_url, store, parts.clock, Metrics(), limit=settings.queue_limit
        ),
    )


def prepared(settings: Settings, store: Store) -> ASGIApp:
    """The same with the store's own prepared statement, the fastest way to do it one by one."""
    # A store has one writing connection. SQLite has one writer at a time whatever we do.
    more = [] if is_embedded(settings) else [store_for(settings) for _ in range(CONNECTIONS - 1)]
    return _with(
        settings,
        store,
        lambda parts: Prepared([store, *more], parts.clock, Metrics(), limit=settings.queue_limit),
    )


def _with(settings: Settings, store: Store, intake: Callable[[Parts], Intake]) -> ASGIApp:
    app = create_app(settings, store=store)
    app.state.parts = replace(app.state.parts, intake=intake(app.state.parts))
    return app


def no_op(settings: Settings, store: Store) -> ASGIApp:
    """The ceiling: a Starlette function route that answers at once."""

    async def accept(_request: Request) -> Response:
        return Response(b'{"status":"accepted"}', 202, media_type="application/json")

    app = Starlette(routes=[Route("/v1/agents/heartbeat", accept, methods=["POST"])])
    # The server stops its app through these.
    app.state.parts = create_app(settings, store=store).state.parts
    return app


BUILDS: dict[str, Build] = {"no-op": no_op, "one-by-one": one_by_one, "prepared": prepared}

if __name__ == "__main__":
    serve(BUILDS[sys.argv[1]])
