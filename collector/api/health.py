"""What probes and scrapers ask, and what this server says of itself; no tenant's key is needed."""

from __future__ import annotations

import asyncio
import hmac

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from collector import __version__
from collector.api.auth import bearer
from collector.api.parts import Parts
from collector.clock import MAX_SKEW
from collector.errors import NotReady, StoreError, Unauthenticated
from collector.gaps import Listener
from collector.intake import Intake
from collector.store.protocol import Store
from collector.values import GAP, SECOND
from contract.vocabulary import BEAT_SECONDS, CONTRACT_VERSION, STATUSES, TTL_SECONDS

STORE_SECONDS = 3
# A commit that takes longer keeps beats from their answers.
COMMIT_HANGS = 3 * SECOND
# Extended parts of the contract that this server keeps; conformance reads them.
CAPABILITIES = (
    "audit",
    "conflict",
    "events",
    "filters",
    "gaps",
    "keys",
    "leave",
    "openorca",
    "paging",
    "presence",
    "removal",
    "sessions",
    "summary",
    "timeline",
)


async def healthz(_request: Request) -> Response:
    """The process runs; it says nothing about the store."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """The store answers and takes beats, its schema is current, and the clocks agree."""
    parts = Parts.of(request)
    unwell = await _store_errors(parts.store)
    if not unwell:
        unwell = [
            *_commit_errors(parts.intake, parts.listener.listened_at, parts.clock.now()),
            *_stamp_errors(parts.listener),
            *_listening_errors(parts.listener, parts.intake.committed_at, parts.clock.now()),
        ]
    errors = [*unwell, *_clock_errors(parts.clock.skew())]
    if errors:
        raise NotReady("; ".join(f"{name}: {message}" for name, message in errors), errors=errors)
    return JSONResponse({"status": "ready"})


async def metrics(request: Request) -> Response:
    """Serve the metrics, unless they have an address of their own."""
    if Parts.of(request).settings.metrics_listen is not None:
        raise HTTPException(404)
    return await scraped(request)


async def scraped(request: Request) -> Response:
    """Serve the metrics to whoever presents their key, if they have one."""
    parts = Parts.of(request)
    wanted = parts.settings.metrics_key
    if wanted is not None and not _presents(request, wanted):
        raise Unauthenticated("The metrics have a key of their own: COLLECTOR_METRICS_KEY.")
    return Response(await parts.metrics.exposition(), media_type="text/plain; version=0.0.4")


def _presents(request: Request, wanted: str) -> bool:
    try:
        presented = bearer(request.headers.raw)
    except Unauthenticated:
        return False
    # Compared in a time that does not depend on how much of it is right.
    return hmac.compare_digest(presented.encode("latin-1"), wanted.encode())


async def contract(_request: Request) -> Response:
    """Which implementation this is, and what it promises."""
    return JSONResponse(
        {
            "implementation": "worker-presence",
            "version": __version__,
            "contract_version": CONTRACT_VERSION,
            "capabilities": list(CAPABILITIES),
            "statuses": list(STATUSES),
            "beat_seconds": BEAT_SECONDS,
            "ttl_seconds": TTL_SECONDS,
        }
    )


async def _store_errors(store: Store) -> list[tuple[str, str]]:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            behind = await store.behind()
    except (StoreError, TimeoutError):
        return [("store", "does not answer")]
    return [("migrations", behind)] if behind else []


def _commit_errors(intake: Intake, listened_at: int, now: int) -> list[tuple[str, str]]:
    """A commit that hangs has not failed yet, and nobody is told; its age tells.

    The collector's own beat, every 5 s, ends a failure too: to one that is not ready nobody beats.
    """
    if hangs := _hangs(intake.committing_since, now):
        return [("commits", f"a commit has been under way for {hangs}")]
    if intake.failed_at is not None and intake.failed_at >= listened_at:
        return [("commits", "the last heartbeats could not be committed")]
    return []


def _listening_errors(listener: Listener, committed_at: int, now: int) -> list[tuple[str, str]]:
    """The collector's own beat goes the way of the others', and comes when none of them does.

    A failure is over with the next commit of either.
    """
    if hangs := _hangs(listener.listening_since, now):
        return [("listening", f"the collector has tried to record for {hangs} that it listens")]
    failed = listener.failed_at is not None and listener.failed_at >= committed_at
    if failed or now - listener.listened_at > GAP:
        age = (now - listener.listened_at) / SECOND
        return [("listening", f"the collector last recorded {age:.1f} s ago that it listens")]
    return []


def _stamp_errors(listener: Listener) -> list[tuple[str, str]]:
    """Told until a second look, 5 s later, finds that all is mended."""
    return [] if listener.ahead is None else [("stamps", f"{listener.ahead} of now")]


def _hangs(since: int | None, now: int) -> str | None:
    if since is None or now - since <= COMMIT_HANGS:
        return None
    return f"{(now - since) / SECOND:.1f} s"


def _clock_errors(skew: int) -> list[tuple[str, str]]:
    if abs(skew) <= MAX_SKEW:
        return []
    off = f"{abs(skew) / SECOND:.1f} s {'ahead of' if skew > 0 else 'behind'}"
    return [
        ("clock", f"the collector's machine has a clock {off} the time that the collector keeps")
    ]
