"""The pure rules: whether a worker is alive at a time, what the wire says, what silence means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collector.values import NO_GAP, SECOND, TTL, Event, Gap, Liveness, Worker
from contract.vocabulary import CPU_PCT_DECIMALS

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
        return Liveness("offline", "left")
    if now - worker.last_seen > TTL:
        return Liveness("offline", "lost")
    return Liveness(worker.status, "alive")


def announced(worker: Worker) -> Liveness:
    """What the log says of it: what a snapshot must say that the log's next lines go on from.

    A worker that is past its TTL reads as online here until its offline is logged. By the clock
    it would be offline at once, and a beat that arrived in time but was committed after the
    snapshot would change nothing, log nothing, and leave the follower with it for ever.
    """
    match worker.reported:
        case "left" | "lost" as reason:
            return Liveness("offline", reason)
    return Liveness(worker.status, "alive")


def project(worker: Worker, now: int, seen: Liveness | None = None) -> dict[str, Any]:
    """The roster's object for this worker, as a reader at `now` may see it."""
    status, reason = seen or liveness(worker, now)
    return {
        "agent_id": worker.agent_id,
        "agent_name": worker.agent_name,
        "status": status,
        "reason": reason,
        "active_sessions": 0 if status == "offline" else worker.active_sessions,
        "project": worker.project,
        "region": worker.region,
        "version": worker.version,
        "host": worker.host,
        "dispatch_name": worker.dispatch_name,
        "started_at": seconds(worker.started_at),
        "ts": seconds(worker.ts),
        "memory_rss_bytes": worker.memory_rss_bytes,
        "memory_total_bytes": worker.memory_total_bytes,
        "memory_pct": _memory_pct(worker),
        "cpu_pct": _cpu_pct(worker),
        "first_seen": seconds(worker.first_seen),
        "last_seen": seconds(worker.last_seen),
        "age_seconds": max(0, now - worker.last_seen) / SECOND,
        "conflict": worker.conflict_seen is not None and now - worker.conflict_seen <= TTL,
    }


def project_line(event: Event) -> dict[str, Any]:
    """The worker of a log line, as it was when that was so."""
    # A line from before a field was there has none of it.
    worker = Worker(**{field: event.worker.get(field) for field in Worker._fields})  # type: ignore[arg-type]
    seen = Liveness("offline", "lost") if event.type == "offline" else None
    return project(worker, event.at, seen)


def project_vitals(worker: Worker) -> dict[str, Any]:
    """What changes with every beat, and is no change."""
    return {
        "agent_id": worker.agent_id,
        "last_seen": seconds(worker.last_seen),
        "memory_rss_bytes": worker.memory_rss_bytes,
        "memory_total_bytes": worker.memory_total_bytes,
        "memory_pct": _memory_pct(worker),
        "cpu_pct": _cpu_pct(worker),
    }


def _memory_pct(worker: Worker) -> float | None:
    if not worker.memory_rss_bytes or not worker.memory_total_bytes:
        return None
    return round(worker.memory_rss_bytes / worker.memory_total_bytes * 100, 1)


def _cpu_pct(worker: Worker) -> float | None:
    # Rounded, and never -0.0: two stores may differ in a float's last bit.
    return None if worker.cpu_pct is None else round(worker.cpu_pct, CPU_PCT_DECIMALS) + 0.0


def gone_before(gaps: Iterable[Gap], now: int) -> int:
    """The stamp below which a silence counts: listened to for more than 45 s in all.

    The collectors' own gaps are not listening. Within 20 s of a gap's end nothing counts yet;
    with no gap in the last 45 s everything does, as the TTL alone says.
    """
    newest_first = sorted(gaps, key=lambda gap: gap.ended_at, reverse=True)
    heard_until, needed = now, TTL
    for gap in newest_first:
        if now - gap.ended_at < HOLD:
            return 0
        if heard_until - gap.ended_at > needed:
            break
        needed -= max(0, heard_until - gap.ended_at)
        heard_until = min(heard_until, gap.began_at)
    return NO_GAP if needed == TTL else heard_until - needed
