"""What a worker says of itself, and the beat that says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contract.producer.vitals import Vitals
from contract.vocabulary import Status


@dataclass(frozen=True, slots=True)
class Description:
    """What stays the same from beat to beat."""

    agent_id: str
    agent_name: str
    version: str | None
    project: str | None
    region: str | None
    host: str | None
    dispatch_name: str | None
    started_at: float

    def beat(self, status: Status, sessions: int, vitals: Vitals, now: float) -> dict[str, Any]:
        """The payload: the contract's eleven fields and its four optional ones."""
        return {
            "agent_id": self.agent_id,
            "agent_name": self.agent_name,
            "status": status,
            "active_sessions": sessions,
            "version": self.version,
            "project": self.project,
            # The key decides the tenant.
            "tenant_id": None,
            "region": self.region,
            "host": self.host,
            "started_at": self.started_at,
            "ts": now,
            "dispatch_name": self.dispatch_name,
            "memory_rss_bytes": vitals.memory_rss_bytes,
            "memory_total_bytes": vitals.memory_total_bytes,
            "cpu_pct": vitals.cpu_pct,
        }
