"""The table of contents: every route, and what runs while they are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ExceptionHandler

from collector import logs
from collector.api import (
    asyncapi,
    audit,
    console,
    docs,
    events,
    gaps,
    health,
    keys,
    openapi,
    openorca,
    presence,
    sessions,
    summary,
    timeline,
    workers,
)
from collector.api.envelope import Envelope
from collector.api.parts import Parts
from collector.api.problems import on_collector_error, on_http_exception
from collector.clock import Clock, SystemClock, anchor_to, every, stay_anchored
from collector.errors import CollectorError
from collector.events import Feed
from collector.gaps import Listener
from collector.intake import Intake
from collector.keys import Keyring
from collector.metrics import Metrics
from collector.quotas import Quotas
from collector.reader import Reader
from collector.reads import Reads
from collector.retention import DAY, Retention
from collector.sessions import Sessions
from collector.settings import Settings
from collector.store.protocol import Store
from collector.sweep import Sweep
from collector.turns import Turns
from collector.values import SECOND

# Hundreds that come at once would keep everybody's beats waiting until all of them have begun.
REQUESTS_A_TURN = 2

ROUTES = [
    Route(workers.HEARTBEAT, workers.HeartbeatEndpoint(), methods=["POST"]),
    Route("/v1/agents", workers.RosterEndpoint, methods=["GET", "DELETE"]),
    Route("/v1/agents/{agent_id}", workers.WorkerEndpoint, methods=["GET", "DELETE"]),
    Route("/v1/agents/{agent_id}/timeline", timeline.timeline),
    Route("/v1/summary", summary.summary),
    Route("/v1/presence", presence.presence),
    Route("/v1/gaps", gaps.gaps),
    Route("/v1/keys", keys.KeysEndpoint, methods=["GET", "POST"]),
    Route("/v1/keys/{key_id}", keys.KeyEndpoint, methods=["DELETE"]),
    Route("/v1/keys/{key_id}/rotate", keys.rotate, methods=["POST"]),
    Route("/v1/sessions", sessions.SessionsEndpoint, methods=["GET", "POST"]),
    Route("/v1/sessions/current", sessions.CurrentEndpoint, methods=["GET", "DELETE"]),
    Route("/v1/sessions/{session_id}", sessions.SessionEndpoint, methods=["DELETE"]),
    Route("/v1/audit", audit.audit),
    Route("/events", events.stream),
    Route("/v1/events", events.poll),
    Route("/openorca/runtime-info", openorca.runtime_info),
    Route("/openorca/snapshot", openorca.snapshot),
    Route("/openorca/events", openorca.stream),
    Route("/v1/contract", health.contract),
    Route("/healthz", health.healthz),
    Route("/readyz", health.readyz),
    Route("/metrics", health.metrics),
    Route("/openapi.json", openapi.openapi),
    Route("/asyncapi.json", asyncapi.asyncapi),
    Route("/docs", docs.docs),
    Route("/", console.page),
    Route("/console/{path:path}", console.asset),
]

_TRANSLATED: Mapping[Any, ExceptionHandler] = {
    CollectorError: on_collector_error,
    HTTPException: on_http_exception,
}


def create_app(settings: Settings, *, store: Store, clock: Clock | None = None) -> Starlette:
    """The collector over an open, migrated store, which stays its caller's to close."""
    parts = _parts(settings, store, clock or SystemClock())
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Envelope)],
        exception_handlers=_TRANSLATED,
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.parts = parts
    return app


def create_metrics_app(app: Starlette) -> Starlette:
    """The metrics of a collector, alone, to be served at an address of their own."""
    parts: Parts = app.state.parts

    @asynccontextmanager
    async def lend(_app: Starlette) -> AsyncIterator[dict[str, Parts]]:
        yield {"parts": parts}

    alone = Starlette(
        routes=[Route("/metrics", health.scraped)],
        middleware=[Middleware(Envelope)],
        exception_handlers=_TRANSLATED,
        lifespan=lend,
    )
    alone.router.redirect_slashes = False
    alone.state.parts = parts
    return alone


def stop_streams(app: Starlette) -> None:
    """End the event streams, and who waits for a read: then a server that is to stop can."""
    app.state.parts.feed.stop()
    app.state.parts.reads.stop()


def _parts(settings: Settings, store: Store, clock: Clock) -> Parts:
    metrics = Metrics()
    metrics.watch(
        "collector_clock_skew_seconds",
        "How far this machine's wall clock is off the collector's.",
        lambda: abs(clock.skew()) / SECOND,
        worst=True,
    )
    listener = Listener(store, clock, collector_id=uuid4().hex)
    keyring = Keyring(store, clock, metrics, verifiers=settings.verifiers)
    reads = Reads(
        store,
        clock,
        Reader(store.url),
        at_once=settings.reads,
        megabytes=settings.read_megabytes,
    )
    feed = Feed(store, clock, reads, limit=settings.subscribers)
    keyring.on_change(feed.heed)
    signed_in = Sessions(store, clock, used=keyring.used)
    keyring.on_change(signed_in.heed)
    metrics.watch("collector_subscribers", "Event streams that are open.", lambda: feed.followers)
    metrics.watch("collector_reads", "Rosters and snapshots under way.", lambda: reads.under_way)
    metrics.watch(
        "collector_read_bytes",
        "Bytes of rosters and snapshots that are being sent.",
        lambda: reads.bytes_under_way,
    )
    return Parts(
        store=store,
        clock=clock,
        metrics=metrics,
        keyring=keyring,
        sessions=signed_in,
        intake=Intake(store, clock, metrics, limit=settings.queue_limit, gone=listener.gone),
        listener=listener,
        sweep=Sweep(store, clock, gone=listener.gone),
        feed=feed,
        reads=reads,
        requests=Turns(REQUESTS_A_TURN),
        quotas=Quotas(store, clock, settings),
        retention=Retention(store, clock, settings),
        session_lasts=settings.session_days * DAY,
        settings=settings,
    )


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[dict[str, Parts]]:
    parts: Parts = app.state.parts
    await anchor_to(parts.store.time, parts.clock)
    await parts.keyring.open()
    await parts.listener.listen()
    await parts.quotas.count()
    parts.intake.open()
    async with _background(
        parts.keyring.follow(),
        parts.listener.follow(),
        parts.sweep.follow(),
        parts.retention.follow(),
        parts.feed.follow(),
        parts.quotas.follow(),
        parts.metrics.follow(),
        every(logs.FLOOD_SECONDS, _sum_up_floods, "floods were not summed up"),
        stay_anchored(parts.store.time, parts.clock),
    ):
        yield {"parts": parts}
        parts.feed.stop()
        parts.reads.stop()
    await parts.intake.close()
    await parts.reads.close()
    await parts.keyring.close()
    # What was counted lately, for the processes that go on.
    parts.metrics.refresh()
    logs.flood.sum_up()


async def _sum_up_floods() -> None:
    logs.flood.sum_up()


@asynccontextmanager
async def _background(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
