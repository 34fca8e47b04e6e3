"""What the collector is measured against: `python -m benchmarks.variants NAME`."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from benchmarks.exchange import Build, serve
from collector.api.parts import Parts
from collector.app import create_app
from collector.errors import Internal
from collector.intake import Answer, Intake
from collector.metrics import Metrics
from collector.settings import Settings
from collector.store.cloud import COMMIT, SET_UP
from collector.store.open import is_embedded, store_for
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat

CONNECTIONS = 16
ANSWER = b'{"status":"accepted"}'


class Alone(Intake, ABC):
    """Each beat is a commit of its own."""

    def enter(self, beat: Beat, answer: Answer) -> None:
        committing = asyncio.ensure_future(self._commit_alone(beat))
        committing.add_done_callback(
            lambda done: answer(Internal(str(done.exception())) if done.exception() else None)
        )

    @abstractmethod
    async def _commit_alone(self, beat: Beat) -> None: ...


class Prepared(Alone):
    """Prepared, on one of several connections to the store."""

    def __init__(self, stores: list[Store], *args: Any, **kwargs: Any) -> None:
        super().__init__(stores[0], *args, **kwargs)
        self._idle: asyncio.Queue[Store] = asyncio.Queue()
        for store in stores:
            self._idle.put_nowait(store)

    async def _commit_alone(self, beat: Beat) -> None:
        store = await self._idle.get()
        try:
            await store.commit([beat], now=self._clock.now(), gone=NO_GAP)
        finally:
            self._idle.put_nowait(store)


class Core(Alone):
    """Through SQLAlchemy Core and its pool, as one writes it."""

    def __init__(self, url: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine = create_async_engine(url, pool_size=CONNECTIONS)
        event.listen(self._engine.sync_engine, "connect", _set_up)

    async def _commit_alone(self, beat: Beat) -> None:
        async with self._engine.begin() as conn:
            await conn.exec_driver_sql(COMMIT, ([beat], NO_GAP, self._clock.now()))


def _set_up(connection: Any, _record: object) -> None:
    connection.run_async(lambda driver: driver.execute(SET_UP))


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
    """A Starlette function route that answers at once."""

    async def accept(_request: Request) -> Response:
        return Response(ANSWER, 202, media_type="application/json")

    return _routed(settings, store, accept)


def no_op_endpoint(settings: Settings, store: Store) -> ASGIApp:
    """The same as an ASGI class in the same router, which makes no request object."""
    return _routed(settings, store, Raw(settings, store))


class Raw:
    """The ceiling of the server itself: an ASGI app with no router."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.state = create_app(settings, store=store).state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        headers = [(b"content-length", b"%d" % len(ANSWER)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})


async def _live(receive: Receive, send: Send) -> None:
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})


def _routed(settings: Settings, store: Store, endpoint: Callable[..., Any]) -> ASGIApp:
    app = Starlette(routes=[Route("/v1/agents/heartbeat", endpoint, methods=["POST"])])
    # The server stops its app through these.
    app.state.parts = create_app(settings, store=store).state.parts
    return app


BUILDS: dict[str, Build] = {
    "no-op": no_op,
    "no-op-endpoint": no_op_endpoint,
    "no-op-raw": Raw,
    "one-by-one": one_by_one,
    "prepared": prepared,
}

if __name__ == "__main__":
    serve(BUILDS[sys.argv[1]])
