"""Who did what in this tenant."""

from __future__ import annotations

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from collector.api import auth, queries
from collector.api.parts import Parts
from collector.values import SECOND
from contract.vocabulary import AUDIT_PAGE, MAX_AUDIT_PAGE, MAX_INTEGER


async def audit(request: Request) -> Response:
    """`GET /v1/audit`: the newest acts first, `limit` at a time, those below `before`."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "admin")
    given = queries.single(request, ("limit", "before"))
    limit = queries.whole(given, "limit", least=1, most=MAX_AUDIT_PAGE, default=AUDIT_PAGE)
    before = queries.whole(given, "before", least=1, most=MAX_INTEGER, default=MAX_INTEGER)
    found = await parts.store.audit(principal.tenant_id, before=before, limit=limit + 1)
    page = found[:limit]
    body = {
        "acts": [{**act._asdict(), "at": act.at / SECOND} for act in page],
        "next_before": page[-1].id if len(found) > limit else None,
        "server_time": parts.clock.now() / SECOND,
    }
    return Response(to_json(body), media_type="application/json")
