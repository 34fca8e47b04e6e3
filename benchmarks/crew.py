"""Workers that give the feed something to tell: they beat, change, leave, fall silent and return.

Times here are the wall's; the collectors' clock goes `followed.SPEED` times as fast.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from benchmarks.cluster import Cluster
from benchmarks.followed import SPEED
from contract.vocabulary import BEAT_SECONDS, TTL_SECONDS

PAUSE_SECONDS = BEAT_SECONDS / SPEED
# Some return before they are lost, some long after.
LONGEST_SILENCE_SECONDS = 2.5 * TTL_SECONDS / SPEED
LONGEST_LEAVE_SECONDS = 3.0
ANSWER_SECONDS = 5.0
# What a worker does next, and how often.
TURNS = {"beat": 50, "change": 25, "restart": 5, "leave": 10, "fall silent": 10}


@dataclass
class Worker:
    """One of the crew, and what it would say of itself now."""

    agent_id: str
    key: str
    status: str = "idle"
    sessions: int = 0
    starts: int = 1
    is_silent: bool = False
    beats: itertools.count[int] = field(default_factory=itertools.count)

    def body(self) -> dict[str, Any]:
        return {
            "agent_id": self.agent_id,
            "agent_name": "crew",
            "status": self.status,
            "active_sessions": self.sessions,
            "version": f"1.{self.starts}",
            "host": f"{self.agent_id}.internal",
            "started_at": 1_790_000_000 + self.starts,
            "cpu_pct": next(self.beats) % 100,
        }

    def change(self) -> None:
        self.sessions = (self.sessions + random.randint(1, 5)) % 10
        self.status = "busy" if self.sessions else "idle"

    def restart(self) -> None:
        self.starts += 1
        self.sessions, self.status = 0, "idle"


class Crew:
    """All workers of all tenants, each beating through whichever collector is up."""

    def __init__(self, keys: Mapping[str, str], cluster: Cluster, size: int) -> None:
        tenants = list(keys)
        self.members = [(tenants[n % len(tenants)], f"worker-{n:04}") for n in range(size)]
        self.accepted = 0
        self.refused = 0
        self._workers = [Worker(agent_id, keys[tenant]) for tenant, agent_id in self.members]
        self._cluster = cluster
        self._calm = False

    async def live(self) -> None:
        """Run until cancelled."""
        limits = httpx2.Limits(max_connections=32, max_keepalive_connections=32)
        async with (
            httpx2.AsyncClient(timeout=ANSWER_SECONDS, limits=limits, trust_env=False) as http,
            asyncio.TaskGroup() as group,
        ):
            for worker in self._workers:
                group.create_task(self._live(worker, http))

    def calm_down(self) -> None:
        """From here on nothing changes: who beats goes on so, who is away stays away."""
        self._calm = True

    async def _live(self, worker: Worker, http: httpx2.AsyncClient) -> None:
        await asyncio.sleep(random.uniform(0, PAUSE_SECONDS))
        while not self._calm:
            await self._take_turn(worker, http)
        while worker.status != "offline" and not worker.is_silent:
            await self._beat(worker, http)
            await asyncio.sleep(PAUSE_SECONDS / 2)

    async def _take_turn(self, worker: Worker, http: httpx2.AsyncClient) -> None:
        match random.choices(*zip(*TURNS.items(), strict=True))[0]:
            case "change":
                worker.change()
            case "restart":
                worker.restart()
            case "leave":
                await self._leave(worker, http)
            case "fall silent":
                await self._fall_silent(worker)
        if not self._calm:
            await self._beat(worker, http)
            await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.8, 1.2))

    async def _leave(self, worker: Worker, http: httpx2.AsyncClient) -> None:
        worker.status = "offline"
        await self._beat(worker, http)
        await asyncio.sleep(random.uniform(0, LONGEST_LEAVE_SECONDS))
        if not self._calm:
            worker.restart()

    async def _fall_silent(self, worker: Worker) -> None:
        worker.is_silent = True
        await asyncio.sleep(random.uniform(0, LONGEST_SILENCE_SECONDS))
        worker.is_silent = self._calm

    async def _beat(self, worker: Worker, http: httpx2.AsyncClient) -> None:
        """Once: a beat that a kill took with it is not sent again, the next one is."""
        url = await self._cluster.url()
        headers = {"Authorization": f"Bearer {worker.key}"}
        try:
            answer = await http.post(
                f"{url}/v1/agents/heartbeat", headers=headers, json=worker.body()
            )
        except httpx2.TransportError:
            return
        self.accepted += answer.status_code == 202
        self.refused += answer.status_code != 202
