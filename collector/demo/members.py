"""Who is in the fleet: kinds of workers, where each runs, and what it says of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

MIB = 1024 * 1024
HOST_BYTES = 8 * 1024 * MIB
REGIONS = ("iad", "fra", "sin")
PROJECTS = ("lobby", "clinic", "claims")
WORKERS_A_HOST = 4


@dataclass(slots=True)
class Kind:
    """What workers of one name have in common; its version moves with each deployment."""

    name: str
    capacity: int
    cpu_idle: float
    cpu_session: float
    mib_idle: int
    mib_session: int
    dispatch_name: str | None
    major: int
    minor: int

    @property
    def version(self) -> str:
        return f"{self.major}.{self.minor}.0"


def kinds() -> tuple[Kind, ...]:
    """The first is deployed first."""
    return (
        Kind("billing", 2, 2, 11, 210, 35, None, 1, 8),
        Kind("reception", 4, 3, 9, 260, 40, "inbound", 2, 3),
        Kind("transcriber", 8, 6, 8, 480, 60, None, 0, 14),
        Kind("concierge", 3, 3, 10, 240, 40, "inbound", 1, 1),
        Kind("outbound", 1, 2, 24, 190, 55, "campaign", 3, 0),
    )


@dataclass(slots=True)
class Member:
    """One agent_id, and the process behind it while there is one."""

    agent_id: str
    kind: Kind
    project: str
    region: str
    host: str
    phase: float
    version: str = ""
    sessions: int = 0
    started_at: float = 0.0
    is_here: bool = False
    # A second process beats under this id, too: nothing else happens to it meanwhile.
    is_shared: bool = False
    # Which process it is: what was planned for an earlier one is void.
    life: int = 0

    def start(self, at: float) -> None:
        self.life += 1
        self.is_here, self.sessions = True, 0
        self.started_at, self.version = at, self.kind.version

    def end(self) -> None:
        self.life += 1
        self.is_here, self.sessions = False, 0

    def body(self, at: float, random: Random, opened_at: float) -> dict[str, Any]:
        """Its heartbeat at that time."""
        status = "offline" if not self.is_here else "busy" if self.sessions else "idle"
        return {
            "agent_id": self.agent_id,
            "agent_name": self.kind.name,
            "status": status,
            "active_sessions": self.sessions,
            "project": self.project,
            "region": self.region,
            "version": self.version,
            "host": self.host,
            "dispatch_name": self.kind.dispatch_name,
            "started_at": round(opened_at + self.started_at, 3),
            "ts": round(opened_at + at, 3),
            "memory_rss_bytes": self._memory(at, random),
            "memory_total_bytes": HOST_BYTES,
            "cpu_pct": self._cpu(at, random),
        }

    def _cpu(self, at: float, random: Random) -> float:
        wave = 1.5 * math.sin(at / 20 + self.phase)
        load = self.kind.cpu_idle + self.kind.cpu_session * self.sessions
        return round(max(0.1, load * random.uniform(0.85, 1.15) + wave), 1)

    def _memory(self, at: float, random: Random) -> int:
        """It grows with the sessions, and a little with the hours, as a process does."""
        grown = 15 * math.log1p(max(0.0, at - self.started_at) / 600)
        mib = self.kind.mib_idle + self.kind.mib_session * self.sessions + grown
        return int((mib + random.uniform(-4, 4)) * MIB)


def members(count: int, random: Random) -> list[Member]:
    cast = kinds()
    return [_member(n, cast[n % len(cast)], len(cast), random) for n in range(count)]


def _member(n: int, kind: Kind, kinds_in_all: int, random: Random) -> Member:
    nth = n // kinds_in_all
    region = REGIONS[nth % len(REGIONS)]
    node = n // (WORKERS_A_HOST * len(REGIONS)) + 1
    return Member(
        agent_id=f"{kind.name}-{region}-{nth + 1}",
        kind=kind,
        project=PROJECTS[n // 2 % len(PROJECTS)],
        region=region,
        host=f"{region}-node-{node}",
        phase=random.uniform(0, 2 * math.pi),
    )
