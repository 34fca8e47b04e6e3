"""How many of the tenant's workers were online, step by step up to now."""

from __future__ import annotations

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from collector.api import auth, gaps, queries
from collector.api.parts import Parts
from collector.values import SECOND
from contract.vocabulary import MAX_PRESENCE_STEPS, MAX_STEP_SECONDS

DEFAULT = 60


async def presence(request: Request) -> Response:
    """`GET /v1/presence`: the last hour in minutes, or as many steps of whatever length."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    given = queries.single(request, ("steps", "step_seconds"))
    steps = queries.whole(given, "steps", least=1, most=MAX_PRESENCE_STEPS, default=DEFAULT)
    length = queries.whole(given, "step_seconds", least=1, most=MAX_STEP_SECONDS, default=DEFAULT)
    now = parts.clock.now()
    since = now - steps * length * SECOND
    online = await parts.store.presence(
        principal.tenant_id, since=since, step=length * SECOND, steps=steps
    )
    body = {
        "since": since / SECOND,
        "step_seconds": length,
        "server_time": now / SECOND,
        "online": online,
        "gaps": [gaps.project(gap) for gap in await parts.store.gaps(since=since)],
    }
    return Response(to_json(body), media_type="application/json")
