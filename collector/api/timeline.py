"""One worker's history: its spells, its transitions, and how much of the time it was online."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from collector.api import auth, gaps
from collector.api.parts import Parts
from collector.api.workers import agent_id_of, found
from collector.timeline import WINDOWS, Uptime, as_read, uptime
from collector.values import SECOND, Event, Gap, Spell
from collector.workers import project_line, seconds

DEFAULT_SECONDS = 7 * 24 * 3600
# The newest ones; a worker that changes every second has 86,400 a day.
MAX_TRANSITIONS = 1000


async def timeline(request: Request) -> Response:
    """`GET /v1/agents/{agent_id}/timeline`: what was, since a time; uptime for its own windows."""
    parts = Parts.of(request)
    tenant_id = (await auth.require(parts, request.headers.raw, "read")).tenant_id
    agent_id, now = agent_id_of(request), parts.clock.now()
    since = gaps.since(request, now, default_seconds=DEFAULT_SECONDS)
    # The row first: what is read later is only newer than its last_seen.
    worker = found(await parts.store.worker(tenant_id, agent_id))
    reach = min(since, now - max(WINDOWS.values()))
    recorded = await parts.store.spells(tenant_id, agent_id, since=reach)
    unheard = await parts.store.gaps(since=reach)
    lines = await parts.store.worker_events(tenant_id, agent_id, since=since, limit=MAX_TRANSITIONS)
    spells = as_read(recorded, last_seen=worker.last_seen, now=now)
    known_since = max(worker.first_seen, parts.retention.spells_since())
    body = {
        "agent_id": agent_id,
        "since": since / SECOND,
        "server_time": now / SECOND,
        "spells": [_spell(spell) for spell in spells if _reaches_past(since, spell)],
        "transitions": [_transition(line) for line in lines],
        "gaps": [gaps.project(gap) for gap in unheard if gap.ended_at > since],
        "uptime": _uptimes(spells, unheard, known_since, now),
    }
    return Response(to_json(body), media_type="application/json")


def _uptimes(
    spells: Sequence[Spell], unheard: Sequence[Gap], known_since: int, now: int
) -> dict[str, Any]:
    return {
        name: _window(uptime(spells, unheard, since=max(known_since, now - length), now=now))
        for name, length in WINDOWS.items()
    }


def _window(result: Uptime) -> dict[str, Any]:
    return {
        "online_seconds": result.online / SECOND,
        "counted_seconds": result.counted / SECOND,
        "gap_seconds": result.gap / SECOND,
        "ratio": result.ratio,
    }


def _reaches_past(since: int, spell: Spell) -> bool:
    return spell.online_until is None or spell.online_until > since


def _spell(spell: Spell) -> dict[str, Any]:
    return {
        "online_from": seconds(spell.online_from),
        "online_until": seconds(spell.online_until),
        "reason": spell.reason,
    }


def _transition(line: Event) -> dict[str, Any]:
    return {
        "type": f"worker.{line.type}",
        "at": seconds(line.at),
        "reason": line.reason,
        "worker": project_line(line),
    }
