"""One worker's history: its spells, its transitions, and how much of the time it was online."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from collector.api import auth, gaps
from collector.api.parts import Parts
from collector.api.workers import agent_id_of, found
from collector.timeline import Uptime, read
from collector.values import SECOND, Event, Spell
from collector.workers import project_line, seconds

DEFAULT_SECONDS = 7 * 24 * 3600


async def timeline(request: Request) -> Response:
    """`GET /v1/agents/{agent_id}/timeline`: what was, since a time; uptime of a day and a week."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "read")
    agent_id, now = agent_id_of(request), parts.clock.now()
    since = gaps.since(request, now, default_seconds=DEFAULT_SECONDS)
    kept_since = parts.retention.spells_since()
    history = found(
        await read(
            parts.store, principal.tenant_id, agent_id, since=since, kept_since=kept_since, now=now
        )
    )
    body = {
        "agent_id": agent_id,
        "since": since / SECOND,
        "server_time": now / SECOND,
        "spells": [_spell(spell) for spell in history.spells],
        "transitions": [_transition(line) for line in history.lines],
        "gaps": [gaps.project(gap) for gap in history.gaps],
        "uptime": {name: _uptime(window) for name, window in history.uptimes.items()},
    }
    return Response(to_json(body), media_type="application/json")


def _spell(spell: Spell) -> dict[str, Any]:
    return {
        "online_from": seconds(spell.online_from),
        "online_until": seconds(spell.online_until),
        "reason": spell.reason,
    }


def _transition(line: Event) -> dict[str, Any]:
    """As the feed tells it, without the cursor."""
    return {
        "type": f"worker.{line.type}",
        "at": seconds(line.at),
        "reason": line.reason,
        "worker": project_line(line),
    }


def _uptime(window: Uptime) -> dict[str, Any]:
    return {
        "online_seconds": window.online / SECOND,
        "counted_seconds": window.counted / SECOND,
        "gap_seconds": window.gap / SECOND,
        "ratio": window.ratio,
    }
