"""What probes and scrapers ask, and what this server says of itself; all of it without a key."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from collector import __version__
from collector.api.parts import Parts
from collector.clock import MAX_SKEW
from collector.errors import NotReady, StoreError
from collector.store.protocol import Store
from collector.values import GAP, SECOND
from contract.vocabulary import BEAT_SECONDS, CONTRACT_VERSION, STATUSES, TTL_SECONDS

STORE_SECONDS = 3
# A commit that takes longer keeps beats from their answers.
COMMIT_HANGS = 5 * SECOND
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
            *_commit_errors(parts.intake.failed_at, parts.listener.listened_at),
            *_hang_errors(
                parts.clock.now(), parts.intake.committing_since, parts.listener.listened_at
            ),
        ]
    errors = [*unwell, *_clock_errors(parts.clock.skew())]
    if errors:
        raise NotReady("; ".join(f"{name}: {message}" for name, message in errors), errors=errors)
    return JSONResponse({"status": "ready"})


async def metrics(request: Request) -> Response:
    return Response(Parts.of(request).metrics.render(), media_type="text/plain; version=0.0.4")


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


def _commit_errors(failed_at: int | None, listened_at: int) -> list[tuple[str, str]]:
    """The collector's own beat, every 5 s, ends it too: to one that is not ready nobody beats."""
    if failed_at is None or listened_at > failed_at:
        return []
    return [("commits", "the last heartbeats could not be committed")]


def _hang_errors(now: int, committing_since: int | None, listened_at: int) -> list[tuple[str, str]]:
    """A commit that hangs has not failed yet, and nobody is told; its age tells."""
    errors = []
    if committing_since is not None and now - committing_since > COMMIT_HANGS:
        age = (now - committing_since) / SECOND
        errors.append(("commits", f"a commit has been under way for {age:.1f} s"))
    if now - listened_at > GAP:
        age = (now - listened_at) / SECOND
        errors.append(("listening", f"the collector last recorded {age:.1f} s ago that it listens"))
    return errors


def _clock_errors(skew: int) -> list[tuple[str, str]]:
    if abs(skew) <= MAX_SKEW:
        return []
    off = f"{abs(skew) / SECOND:.1f} s {'ahead of' if skew > 0 else 'behind'}"
    return [
        ("clock", f"the collector's machine has a clock {off} the time that the collector keeps")
    ]
