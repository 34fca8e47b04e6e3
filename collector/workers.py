"""The pure rules: whether a worker is alive at a time, what the wire says, what silence means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collector.values import NO_GAP, SECOND, TTL, Event, Gap, Liveness, Worker
from contract.vocabulary import CPU_PCT_DECIMALS, STAMP_AHEAD_SECONDS, STATUSES

# Made once: a roster has one for each of its thousands of workers.
_LEFT = Liveness("offline", "left")
_LOST = Liveness("offline", "lost")
_ALIVE = {status: Liveness(status, "alive") for status in STATUSES}

_CPU_PCT_PARTS = 10**CPU_PCT_DECIMALS

# After a gap the workers get this long to be heard again.
HOLD = 20 * SECOND


def seconds(microseconds: int | None) -> float | None:
    """A time as the wire has it."""
    return None if microseconds is None else microseconds / SECOND


def microseconds(value: float | None) -> int | None:
    """A time of the wire as the stores have it."""
    return None if value is None else round(value * SECOND)


def liveness(worker: Worker, now: int) -> Liveness:
    """Alive while the last beat is no more than 45 s old, whatever the row says."""
    if worker.status == "offline":
        return _LEFT
    if now - worker.last_seen > TTL:
        return _LOST
    return _ALIVE[worker.status]


def announced(worker: Worker) -> Liveness:
    """What the log says of it: what a snapshot must say that the log's next lines go on from.

    A worker that is past its TTL reads as online here until its offline is logged. By the clock
    it would be offline at once, and a beat that arrived in time but was committed after the
    snapshot would change nothing, log nothing, and leave the follower with it for ever.
    """
    match worker.reported:
        case "left":
            return _LEFT
        case "lost":
            return _LOST
    return _ALIVE[worker.status]


def project(worker: Worker, now: int, seen: Liveness | None = None) -> dict[str, Any]:
    """The roster's object for this worker, as a reader at `now` may see it."""
    status, reason = seen or liveness(worker, now)
    # All of them at once: a roster has thousands, and to ask a worker for a field takes longer.
    # fmt: off
    (
        agent_id, agent_name, _, sessions, project, region, version, host, dispatch_name,
        started_at, ts, memory, memory_total, cpu_pct, last_seen, first_seen, conflict_seen, _,
    ) = worker
    # fmt: on
    return {
        "agent_id": agent_id,
        "agent_name": agent_name,
        "status": status,
        "reason": reason,
        "active_sessions": 0 if status == "offline" else sessions,
        "project": project,
        "region": region,
        "version": version,
        "host": host,
        "dispatch_name": dispatch_name,
        "started_at": seconds(started_at),
        "ts": seconds(ts),
        "memory_rss_bytes": memory,
        "memory_total_bytes": memory_total,
        "memory_pct": _memory_pct(memory, memory_total),
        "cpu_pct": _cpu_pct(cpu_pct),
        "first_seen": first_seen / SECOND,
        "last_seen": last_seen / SECOND,
        "age_seconds": (now - last_seen) / SECOND if now > last_seen else 0.0,
        "conflict": conflict_seen is not None and now - conflict_seen <= TTL,
    }


def project_line(event: Event) -> dict[str, Any]:
    """The worker of a log line, as it was when that was so."""
    # A line from before a field was there has none of it.
    worker = Worker(**{field: event.worker.get(field) for field in Worker._fields})  # type: ignore[arg-type]
    seen = _LOST if event.type == "offline" else None
    return project(worker, event.at, seen)


def project_vitals(worker: Worker) -> dict[str, Any]:
    """What changes with every beat, and is no change."""
    return {
        "agent_id": worker.agent_id,
        "last_seen": seconds(worker.last_seen),
        "memory_rss_bytes": worker.memory_rss_bytes,
        "memory_total_bytes": worker.memory_total_bytes,
        "memory_pct": _memory_pct(worker.memory_rss_bytes, worker.memory_total_bytes),
        "cpu_pct": _cpu_pct(worker.cpu_pct),
    }


# Rounded by hand: round() takes three times as long, and every worker of a roster has both.
def _memory_pct(used: int | None, total: int | None) -> float | None:
    return int(used / total * 1000 + 0.5) / 10 if used and total else None


def _cpu_pct(value: float | None) -> float | None:
    """Two stores may differ in a float's last bit, and one of them knows no -0.0."""
    return None if value is None else int(value * _CPU_PCT_PARTS + 0.5) / _CPU_PCT_PARTS


def ended(gaps: Iterable[Gap], now: int) -> list[Gap]:
    """Return the gaps that are over.

    One that ends more than STAMP_AHEAD_SECONDS ahead of now is the fault of some clock.
    """
    return [gap for gap in gaps if gap.ended_at <= now + STAMP_AHEAD_SECONDS * SECOND]


def gone_before(gaps: Iterable[Gap], now: int) -> int:
    """The stamp below which a silence counts: listened to for more than 45 s in all.

    The collectors' own gaps are not listening. Within 20 s of a gap's end nothing counts yet;
    with no gap in the last 45 s everything does, as the TTL alone says.
    """
    newest_first = sorted(ended(gaps, now), key=lambda gap: gap.ended_at, reverse=True)
    heard_until, needed = now, TTL
    for gap in newest_first:
        if now - gap.ended_at < HOLD:
            return 0
        if heard_until - gap.ended_at > needed:
            break
        needed -= max(0, heard_until - gap.ended_at)
        heard_until = min(heard_until, gap.began_at)
    return NO_GAP if needed == TTL else heard_until - needed
