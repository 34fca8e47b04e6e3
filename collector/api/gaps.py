"""The collectors' own gaps: when nobody listened, so that nobody blames the workers."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from collector.api import auth, queries
from collector.api.parts import Parts
from collector.values import SECOND, Gap
from contract.vocabulary import MAX_TIME_SECONDS

DEFAULT_SECONDS = 24 * 3600


async def gaps(request: Request) -> Response:
    """`GET /v1/gaps`: the store's gaps that ended after `since`, oldest first."""
    parts = Parts.of(request)
    await auth.admit(parts, request, "read")
    now = parts.clock.now()
    found = await parts.store.gaps(since=since(request, now, default_seconds=DEFAULT_SECONDS))
    body = {"gaps": [project(gap) for gap in found], "server_time": now / SECOND}
    return Response(to_json(body), media_type="application/json")


def since(request: Request, now: int, *, default_seconds: int) -> int:
    """The query's only parameter, epoch seconds; that long ago where it is not given."""
    given = queries.single(request, ("since",))
    ago = max(0, now / SECOND - default_seconds)
    return round(
        queries.number(given, "since", least=0, most=MAX_TIME_SECONDS, default=ago) * SECOND
    )


def project(gap: Gap) -> dict[str, Any]:
    return {
        "began_at": gap.began_at / SECOND,
        "ended_at": gap.ended_at / SECOND,
        "seconds": (gap.ended_at - gap.began_at) / SECOND,
    }
