"""The roster and its log in the words of the OpenOrca console.

Its nodes are called agents: here each is one worker, by its `agent_id`. It has no word for a node
that goes, nor for a machine that changes: those it learns from a whole snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from collector.values import SECOND, Liveness, Worker
from collector.workers import announced, liveness, project

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


class Tally:
    """The fleet's figures, kept true one worker at a time."""

    def __init__(self, standings: dict[str, Standing]) -> None:
        self._standings = standings
        self._with: Counter[str] = Counter()
        self._sessions = 0
        for standing in standings.values():
            self._count(standing, 1)

    def note(self, worker: dict[str, Any]) -> bool:
        """Take in how this worker is now; whether any figure is another one for it."""
        before = self.health()
        self.drop(worker["agent_id"])
        standing = self._standings[worker["agent_id"]] = _standing(worker)
        self._count(standing, 1)
        return self.health() != before

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
    """What a tally begins with: each worker as the log says it is."""
    found: dict[str, Standing] = {}
    for worker in workers:
        status, reason = announced(worker)
        found[worker.agent_id] = (
            status,
            reason,
            0 if status == "offline" else worker.active_sessions,
        )
    return found


def _standing(worker: dict[str, Any]) -> Standing:
    return worker["status"], worker["reason"], worker["active_sessions"]


def runtime_info(version: str) -> dict[str, Any]:
    return {
        "runtime": RUNTIME,
        "version": version,
        "language": "python",
        "supports": {"sse": True, "snapshots": True, "interventions": False},
    }


def roster(
    workers: Iterable[Worker], now: int, *, see: Callable[[Worker, int], Liveness] = liveness
) -> list[dict[str, Any]]:
    """The roster's objects, newest worker first: where the console puts one it has not seen."""
    newest_first = sorted(workers, key=lambda w: (w.first_seen, w.agent_id), reverse=True)
    return [project(worker, now, see(worker, now)) for worker in newest_first]


def surroundings(workers: Collection[dict[str, Any]], now: int) -> dict[str, Any]:
    """All that a snapshot says beside its nodes, as a reader at `now` may see it."""
    at = now / SECOND
    tally = Tally({worker["agent_id"]: _standing(worker) for worker in workers})
    return {
        "tasks": [],
        "actionLog": [],
        "interventions": [],
        "swarms": [],
        "machines": machines(workers, at),
        "fleetHealth": tally.health(),
        "meta": {
            "runtime": RUNTIME,
            "generatedAt": datetime.fromtimestamp(at, UTC).isoformat(),
            "connectionStatus": CONNECTED,
        },
    }


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


def machines(workers: Iterable[dict[str, Any]], at: float) -> list[dict[str, Any]]:
    """The workers' hosts: each is online while one of its workers is."""
    by_host: dict[str, list[dict[str, Any]]] = {}
    for worker in workers:
        by_host.setdefault(_host(worker), []).append(worker)
    return [_machine(host, of_host, at) for host, of_host in sorted(by_host.items())]


def lasting(seconds: float) -> str:
    """A length of time in its two largest units."""
    minutes = int(max(0.0, seconds)) // 60
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m"


def _machine(host: str, workers: list[dict[str, Any]], at: float) -> dict[str, Any]:
    is_online = any(worker["status"] != "offline" for worker in workers)
    newest = max(workers, key=lambda worker: float(worker["last_seen"]))
    return {
        "id": host,
        "name": host,
        "os": UNKNOWN,
        "location": newest["region"] or "",
        "isOnline": is_online,
        "lastSeen": "now" if is_online else f"{lasting(at - newest['last_seen'])} ago",
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
