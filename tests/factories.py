"""Values that tests start from; each takes only what matters to the test."""

from __future__ import annotations

from typing import Any

from collector.values import SECOND, Beat, Worker

# A Monday; tests say seconds after it.
START = 1_794_800_000 * SECOND


def at(seconds: float) -> int:
    """Microseconds, that many seconds after the tests' start."""
    return START + round(seconds * SECOND)


def beat(agent_id: str = "worker-1", *, seconds: float = 0, **fields: Any) -> Beat:
    """A beat of tenant `acme`, stamped `seconds` after the start."""
    row: dict[str, Any] = {
        "tenant_id": "acme",
        "agent_id": agent_id,
        "agent_name": "reception",
        "status": "idle",
        "active_sessions": 0,
        "project": "lobby",
        "region": "iad",
        "version": "1.0",
        "host": "host-1",
        "dispatch_name": None,
        "started_at": at(-60),
        "ts": None,
        "memory_rss_bytes": None,
        "memory_total_bytes": None,
        "cpu_pct": None,
        "last_seen": at(seconds),
    }
    return Beat(**{**row, **fields})


def worker(**fields: Any) -> Worker:
    """A row as the store gives it back."""
    row = {name: value for name, value in beat()._asdict().items() if name != "tenant_id"}
    row |= {"first_seen": at(0), "conflict_seen": None, "reported": "online"}
    return Worker(**{**row, **fields})


def body(agent_id: str = "worker-1", **fields: Any) -> dict[str, Any]:
    """The JSON that a worker posts."""
    return {"agent_id": agent_id, "agent_name": "reception", "status": "idle", **fields}
