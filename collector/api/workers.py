"""Workers: a heartbeat in, the roster out, one worker read or removed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TypeVar
from urllib.parse import unquote

from pydantic_core import to_json
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from collector import removal
from collector.api import admission, auth, rosters
from collector.api.large import LargeResponse, held_document
from collector.api.parts import Parts, arrived_at
from collector.documents import Question
from collector.errors import CollectorError, NotFound
from collector.redaction import redacted
from collector.values import SECOND, Act, Gap
from collector.workers import project
from contract.vocabulary import BEAT_SECONDS

HEARTBEAT = "/v1/agents/heartbeat"
UNKNOWN = "There is no worker with this agent_id."
T = TypeVar("T")


class HeartbeatEndpoint:
    """`POST /v1/agents/heartbeat`. An ASGI class: the hot path pays for no request object."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = Parts.of(scope)
        # Before any queue, so that a slow commit never makes a worker look dead.
        stamp = arrived_at(scope) or parts.clock.now()
        try:
            await admission.admit(parts, scope["headers"], stamp, receive)
        except CollectorError as error:
            parts.metrics.beats.labels(error.code).inc()
            raise
        await Response(accepted(stamp), 202, media_type="application/json")(scope, receive, send)


class RosterEndpoint(HTTPEndpoint):
    """`/v1/agents`: the whole roster or a page of it; and removal of all who match."""

    async def get(self, request: Request) -> Response:
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "read")
        asked = rosters.parse(request, parts.clock.now())
        question = Question("roster", principal.tenant_id, asked.query)
        document, held = await held_document(parts.reads, question)
        rest = {
            "server_time": document.made_at / SECOND,
            "next_cursor": asked.cursor_after(document.facts.last),
            "recent_gap": _recent_gap(parts.listener.recent()),
        }
        pieces = [b'{"workers":[', *document.pieces, b"]," + to_json(rest)[1:]]
        return LargeResponse(pieces, parts.reads.turns, held)

    async def delete(self, request: Request) -> Response:
        """Remove everybody who matches, or only say who would be."""
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "admin")
        now = parts.clock.now()
        query, is_preview = rosters.parse_removal(request, now)
        act = Act("workers.removed", redacted(str(request.url.query)), principal.key_id)
        done = await removal.remove(
            parts.store, principal.tenant_id, query, now=now, act=None if is_preview else act
        )
        body = {**asdict(done), "dry_run": is_preview, "server_time": now / SECOND}
        return Response(to_json(body), media_type="application/json")


class WorkerEndpoint(HTTPEndpoint):
    """`/v1/agents/{agent_id}`. One route for both, so that a 405's `Allow` names both."""

    async def get(self, request: Request) -> Response:
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "read")
        worker = found(await parts.store.worker(principal.tenant_id, agent_id_of(request)))
        return Response(to_json(project(worker, parts.clock.now())), media_type="application/json")

    async def delete(self, request: Request) -> Response:
        """Remove it; the next beat makes it anew."""
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "admin")
        agent_id, now = agent_id_of(request), parts.clock.now()
        act = Act("worker.removed", agent_id, principal.key_id)
        if not await parts.store.remove(principal.tenant_id, [agent_id], now=now, act=act):
            raise NotFound(UNKNOWN)
        return Response(status_code=204)


def found(answer: T | None) -> T:
    """What the store has of the worker that was asked for; another tenant's is never found."""
    if answer is None:
        raise NotFound(UNKNOWN)
    return answer


def agent_id_of(request: Request) -> str:
    """The path's percent-encoded agent_id; what no worker can be called is not found."""
    try:
        agent_id = unquote(request.path_params["agent_id"], errors="strict")
    except UnicodeDecodeError:
        agent_id = "\0"
    if "\0" in agent_id:
        raise NotFound(UNKNOWN)
    return agent_id


def _recent_gap(gap: Gap | None) -> dict[str, float] | None:
    """Why workers may read as offline that are not: until lately nobody listened to them."""
    if gap is None:
        return None
    return {"began_at": gap.began_at / SECOND, "ended_at": gap.ended_at / SECOND}


def accepted(stamp: int) -> bytes:
    """The answer to a beat that is committed."""
    return (
        f'{{"status":"accepted","server_time":{stamp / SECOND!r},'
        f'"next_beat_seconds":{BEAT_SECONDS}}}'
    ).encode()
