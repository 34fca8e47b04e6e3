"""The tenant's workers in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from collector.api import auth, queries
from collector.api.parts import Parts
from collector.values import SECOND, Group
from contract.vocabulary import STATUSES


async def summary(request: Request) -> Response:
    """`GET /v1/summary`: how many workers and sessions there are, in all and by name."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    queries.single(request, ())
    now = parts.clock.now()
    groups = await parts.store.summary(principal.tenant_id, now=now)
    body = {
        "server_time": now / SECOND,
        **_totals(groups),
        "by_agent_name": [
            {"agent_name": name, **_totals(list(named))}
            for name, named in groupby(groups, key=lambda group: group.agent_name)
        ],
    }
    return Response(to_json(body), media_type="application/json")


def _totals(groups: Sequence[Group]) -> dict[str, Any]:
    return {
        "workers": sum(group.workers for group in groups),
        "sessions": sum(group.sessions for group in groups),
        "by_status": {
            status: sum(group.workers for group in groups if group.status == status)
            for status in STATUSES
        },
    }
