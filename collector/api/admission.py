"""The one admission of heartbeats: key, scope, length, parsing, quota and queue.

A beat comes by one of two ways. The connection has it whole and asks `at_once`, which lets it in or
leaves it to the endpoint; the endpoint asks `admit`, which may wait, and says what is wrong. Both
build the beat and enter it by the same two functions, so neither way can lack a rule of the other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pydantic import TypeAdapter
from pydantic_core import from_json
from starlette.types import Receive

from collector.api import auth
from collector.api.auth import Headers
from collector.api.bodies import parse, read_body
from collector.api.parts import Parts
from collector.errors import CollectorError
from collector.intake import Answer, awaited
from collector.logs import agent
from collector.values import Beat, Principal
from collector.workers import microseconds
from contract.vocabulary import MAX_BODY_BYTES, Scope
from contract.worker import AgentId, Heartbeat

SCOPE: Final[Scope] = "ingest"
_AGENT_ID: Final[TypeAdapter[str]] = TypeAdapter(AgentId)


def is_expected(parts: Parts, key: bytes, length: int, *, now: int) -> bool:
    """Whether a beat of this key's digest and length may be let in at once when it is whole."""
    return _holder(parts, key, length, now) is not None


class Admitted(NamedTuple):
    """A beat that was let in: whose it is."""

    principal: Principal
    agent_id: str


def at_once(parts: Parts, key: bytes, stamp: int, body: bytes, answer: Answer) -> Admitted | None:
    """Let in the beat of a key's digest and return whose it is; None leaves it to the endpoint.

    Nothing is refused here, and what is left to the endpoint is counted nowhere: the endpoint finds
    again what is wrong, and says it.
    """
    principal = _holder(parts, key, len(body), stamp)
    if principal is None:
        return None
    try:
        beat = beat_of(principal.tenant_id, body, stamp)
        if not parts.quotas.knows(beat):
            return None
        _enter(parts, beat, answer, is_live=True)
    except Exception:
        return None
    parts.keyring.hit(principal)
    return Admitted(principal, beat.agent_id)


async def admit(parts: Parts, headers: Headers, stamp: int, receive: Receive) -> None:
    """Return once the beat is committed; raise what kept it from that."""
    principal = await auth.require(parts, headers, SCOPE, at=stamp)
    beat = _read(principal.tenant_id, await read_body(receive), stamp)
    agent.set(beat.agent_id)
    is_live = parts.quotas.knows(beat) or await parts.quotas.is_live(beat)
    answer, committed = awaited()
    _enter(parts, beat, answer, is_live=is_live)
    await committed


def _read(tenant_id: str, body: bytes, stamp: int) -> Beat:
    try:
        return beat_of(tenant_id, body, stamp)
    except CollectorError:
        agent.set(agent_id_in(body))
        raise


def agent_id_in(body: bytes) -> str | None:
    """The agent_id of a body that is refused, if it can be read that far and is one."""
    try:
        read = from_json(body[:MAX_BODY_BYTES], allow_partial=True)
        return _AGENT_ID.validate_python(read["agent_id"])
    except (ValueError, TypeError, KeyError):
        return None


def beat_of(tenant_id: str, body: bytes, stamp: int) -> Beat:
    """The body's own tenant_id stays behind here, unread."""
    heartbeat = parse(Heartbeat, body)
    # In the order of its fields: named ones would take twice as long.
    return Beat(
        tenant_id,
        heartbeat.agent_id,
        heartbeat.agent_name,
        heartbeat.status,
        heartbeat.active_sessions or 0,
        heartbeat.project,
        heartbeat.region,
        heartbeat.version,
        heartbeat.host,
        heartbeat.dispatch_name,
        microseconds(heartbeat.started_at),
        microseconds(heartbeat.ts),
        heartbeat.memory_rss_bytes,
        heartbeat.memory_total_bytes,
        heartbeat.cpu_pct,
        stamp,
    )


def _holder(parts: Parts, key: bytes, length: int, now: int) -> Principal | None:
    principal = parts.keyring.known(key, now=now)
    if principal is None or SCOPE not in principal.scopes or length > MAX_BODY_BYTES:
        return None
    return principal


def _enter(parts: Parts, beat: Beat, answer: Answer, *, is_live: bool) -> None:
    """Count the beat and put it in the queue, or raise before anything is counted."""
    if parts.quotas.are_on:
        parts.intake.check(beat.tenant_id)
        answer = parts.quotas.admit(beat, answer, is_live=is_live)
    parts.intake.enter(beat, answer)
