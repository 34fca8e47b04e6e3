"""The roster and its log in the words of the OpenOrca console.

Its nodes are called agents: here each is one worker, by its `agent_id`. It has no word for a node
that goes, nor for a machine that changes: those it learns from a whole snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from collector.values import SECOND, Worker
from collector.workers import announced

RUNTIME: Final = "worker-presence"
CONNECTED: Final = "connected"
STATUSES: Final = {"busy": "active", "idle": "idle", "offline": "offline"}
UNKNOWN: Final = "unknown"
# The only ones that the console draws; a worker of any other project is shown in the first.
DOMAINS: Final = ("communications", "productivity", "research", "development", "automation")
# A fifth of what the console shows as a full load.
ACTIVITY_PER_SESSION: Final = 20


# The status, the reason and the sessions of one worker, as plain values for another process.
Standing = tuple[str, str, int]


class Host(NamedTuple):
    """A machine: online while one of its workers is, and where its newest worker says it is."""

    is_online: bool
    last_seen: float
    region: str | None


class Tally:
    """The fleet's figures, kept true one worker at a time."""

    def __init__(self, standings: dict[str, Standing]) -> None:
        self._standings = standings
        self._with: Counter[str] = Counter()
        self._sessions = 0
        for standing in standings.values():
            self._count(standing, 1)

    def note(self, worker: dict[str, Any]) -> None:
        """Take in how this worker is now."""
        self.drop(worker["agent_id"])
        standing = worker["status"], worker["reason"], worker["active_sessions"]
        self._standings[worker["agent_id"]] = standing
        self._count(standing, 1)

    def drop(self, agent_id: str) -> None:
        """This worker was removed, if it was there."""
        standing = self._standings.pop(agent_id, None)
        if standing is not None:
            self._count(standing, -1)

    def health(self) -> dict[str, Any]:
        return {
            "totalAgents": len(self._standings),
            "activeAgents": self._with["busy"],
            "offlineAgents": self._with["offline"],
            "interventionsRequired": 0,
            "tasksInProgress": self._sessions,
            "tasksCompletedToday": 0,
            "swarmsActive": 0,
            "overallHealth": self._overall(),
        }

    def _count(self, standing: Standing, by: int) -> None:
        status, reason, sessions = standing
        self._with[status] += by
        self._with[reason] += by
        self._sessions += by * sessions

    def _overall(self) -> str:
        """Who left in good order is no loss."""
        if not self._with["lost"]:
            return "healthy"
        return "degraded" if self._with["alive"] else "critical"


def standings(workers: Iterable[Worker]) -> dict[str, Standing]:
    """Return each worker's standing, as the log says it is; a tally begins with them."""
    found: dict[str, Standing] = {}
    for worker in workers:
        status, reason = announced(worker)
        found[worker.agent_id] = (
            status,
            reason,
            0 if status == "offline" else worker.active_sessions,
        )
    return found


def runtime_info(version: str) -> dict[str, Any]:
    return {
        "runtime": RUNTIME,
        "version": version,
        "language": "python",
        "supports": {"sse": True, "snapshots": True, "interventions": False},
    }


class Surroundings:
    """All that a snapshot says beside its nodes, gathered one worker at a time."""

    def __init__(self) -> None:
        self._tally = Tally({})
        self._hosts: dict[str, Host] = {}

    def note(self, worker: dict[str, Any]) -> None:
        self._tally.note(worker)
        name = _host(worker)
        known = self._hosts.get(name, Host(is_online=False, last_seen=-1.0, region=None))
        is_online = known.is_online or worker["status"] != "offline"
        if worker["last_seen"] > known.last_seen:
            known = Host(is_online, worker["last_seen"], worker["region"])
        self._hosts[name] = known._replace(is_online=is_online)

    def told(self, now: int) -> dict[str, Any]:
        at = now / SECOND
        return {
            "tasks": [],
            "actionLog": [],
            "interventions": [],
            "swarms": [],
            "machines": [_machine(*each, at) for each in sorted(self._hosts.items())],
            "fleetHealth": self._tally.health(),
            "meta": {
                "runtime": RUNTIME,
                "generatedAt": datetime.fromtimestamp(at, UTC).isoformat(),
                "connectionStatus": CONNECTED,
            },
        }


def newest_first(workers: Iterable[Worker]) -> list[Worker]:
    """The order of a snapshot: where the console puts a worker that it has not seen."""
    return sorted(workers, key=lambda w: (w.first_seen, w.agent_id), reverse=True)


def node(worker: dict[str, Any], at: float) -> dict[str, Any]:
    """One worker as the console's node, at that time."""
    return {
        "id": worker["agent_id"],
        "name": worker["agent_name"],
        "machineId": _host(worker),
        "machineName": _host(worker),
        "status": STATUSES[worker["status"]],
        "domain": worker["project"] if worker["project"] in DOMAINS else DOMAINS[0],
        "integrations": [],
        "currentTaskId": None,
        "currentAction": _action(worker),
        "memoryUsage": worker["memory_pct"] or 0,
        "uptime": _uptime(worker, at),
        "tasksCompleted": 0,
        "collaboratingWith": [],
        "interventionRequired": False,
        "activityLevel": _activity(worker),
        "loadedCores": [],
        "knowledgeContributions": 0,
        "graphAccess": "read",
        "activeSessions": worker["active_sessions"],
    }


def lasting(seconds: float) -> str:
    """A length of time in its two largest units."""
    minutes = int(max(0.0, seconds)) // 60
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m"


def _machine(name: str, host: Host, at: float) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "os": UNKNOWN,
        "location": host.region or "",
        "isOnline": host.is_online,
        "lastSeen": "now" if host.is_online else f"{lasting(at - host.last_seen)} ago",
    }


def _host(worker: dict[str, Any]) -> str:
    host: str | None = worker["host"]
    return host or UNKNOWN


def _action(worker: dict[str, Any]) -> str:
    sessions = worker["active_sessions"]
    match worker["status"], worker["reason"]:
        case "offline", reason:
            return f"offline, {reason}"
        case status, _ if sessions:
            return f"{status}, {sessions} session{'' if sessions == 1 else 's'}"
        case status, _:
            return str(status)


def _uptime(worker: dict[str, Any], at: float) -> str:
    """By the worker's own start; nothing for one that is not up, or did not say."""
    if worker["status"] == "offline" or worker["started_at"] is None:
        return ""
    return lasting(at - worker["started_at"])


def _activity(worker: dict[str, Any]) -> int:
    """From 0 to 100; a busy worker shows some even if it counts no sessions."""
    sessions: int = worker["active_sessions"] or int(worker["status"] == "busy")
    return min(100, ACTIVITY_PER_SESSION * sessions)
