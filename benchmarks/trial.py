"""One trial of the feed: a store, its collectors, a fleet, and followers who write all down."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import click
import httpx2

from benchmarks.cluster import Cluster
from benchmarks.crew import Crew
from benchmarks.followed import FastClock
from benchmarks.followers import Follower, Judgement, Log, State, differences, judge, state_of
from benchmarks.places import Kind
from collector.errors import StoreError
from collector.store.protocol import Store

FOLLOWERS = 4  # of each tenant; every other one also cuts its own streams
PAGE = 1000
# A collector lives this long at most; some outlive the three seconds in which workers get lost.
LIFE_SECONDS = 5.0
# How long a control runs, and the proof after its last kill.
CONTROL_SECONDS = 8.0
LAST_SECONDS = 4.0
REMOVE_EVERY_SECONDS = 1.0
# Until whoever is silent is announced, and everybody has heard.
SETTLE_SECONDS = 6.0
LOOKS = {"honest": 10, "sequence": 1, "apart": 1}

Variant = Literal["honest", "sequence", "apart"]
TOLD = {"worker.online", "worker.changed", "worker.left", "worker.offline", "worker.removed"}
_SEEN_NOTHING = "the control {}: the proof sees nothing"


@dataclass(frozen=True)
class Outcome:
    """What the followers of one store saw, against its log and its roster."""

    store: Kind
    variant: Variant
    kills: int
    followers: int
    unconnected: int
    reconnects: int
    lines_in_the_log: int
    holes: int
    told: Mapping[str, int]
    snapshots: int
    unasked_snapshots: int
    seen: Judgement
    differences: list[str]

    @property
    def faults(self) -> list[str]:
        """Why this outcome proves nothing, or proves a fault."""
        if self.unconnected or not self.seen.seen:
            return [f"{self.unconnected} followers never connected, {self.seen.seen} lines seen"]
        match self.variant:
            case "sequence":
                return [] if self.seen.missing else [_SEEN_NOTHING.format("lost no line")]
            case "apart":
                differs = bool(self.differences)
                return [] if differs else [_SEEN_NOTHING.format("led to no other state")]
        found = {
            f"{self.seen.missing} lines are missing": self.seen.missing,
            f"{self.seen.duplicated} lines came twice": self.seen.duplicated,
            f"{self.seen.out_of_order} lines are out of order": self.seen.out_of_order,
            f"{self.seen.unlike_the_log} lines are not the log's": self.seen.unlike_the_log,
            f"the log has {self.holes} holes": self.holes,
            f"{self.unasked_snapshots} resumes got a snapshot": self.unasked_snapshots,
            f"{len(self.differences)} states differ from the roster": self.differences,
            f"nothing was told but {sorted(self.told)}": bool(TOLD - self.told.keys()),
        }
        return [fault for fault, holds in found.items() if holds]


class Trial:
    """One store, its collectors, and everybody around them."""

    def __init__(
        self,
        kind: Kind,
        variant: Variant,
        store: Store,
        clock: FastClock,
        running: Cluster,
        minted: Mapping[str, str],
        workers: int,
    ) -> None:
        self._kind = kind
        self._variant = variant
        self._store = store
        self._clock = clock
        self._cluster = running
        self._keys = minted
        self._crew = Crew(minted, running, workers)
        self._followers = [
            Follower(tenant, key, running, is_restless=bool(n % 2))
            for tenant, key in minted.items()
            for n in range(FOLLOWERS)
        ]

    async def outcome(self, kills: int) -> Outcome:
        parts = [self._crew.live(), *(each.follow() for each in self._followers)]
        async with _meanwhile(*parts):
            if self._variant == "honest":
                async with _meanwhile(self._remove_now_and_then()):
                    await self._kill_at_random(kills)
                    await asyncio.sleep(LAST_SECONDS)
            else:
                await asyncio.sleep(CONTROL_SECONDS)
            self._calm_down()
            await asyncio.sleep(SETTLE_SECONDS)
            return await self._look()

    def _calm_down(self) -> None:
        self._say("settling")
        self._crew.calm_down()
        for each in self._followers:
            each.calm_down()

    async def _kill_at_random(self, kills: int) -> None:
        for n in range(1, kills + 1):
            await self._cluster.url()
            await asyncio.sleep(random.uniform(0, LIFE_SECONDS))
            await self._cluster.kill()
            reconnects = sum(each.connections for each in self._followers)
            self._say(f"kill {n}, {self._crew.accepted} beats, {reconnects} streams so far")
        await self._cluster.complete()

    async def _remove_now_and_then(self) -> None:
        """As an operator does, from a process of its own, which wakes nobody."""
        while True:
            await asyncio.sleep(REMOVE_EVERY_SECONDS)
            with suppress(StoreError):
                tenant_id, agent_id = random.choice(self._crew.members)
                await self._store.remove(tenant_id, [agent_id], now=self._clock.now())

    async def _look(self) -> Outcome:
        """Compare, and a few times again if need be: what is wrong stays wrong, a delay passes."""
        for _ in range(LOOKS[self._variant]):
            heads = {tenant: max(log) for tenant, log in (await self._logs()).items()}
            rosters = await self._rosters()
            seen = [(each.tenant, *each.seen()) for each in self._followers]
            logs = await self._logs()
            outcome = self._outcome(
                logs,
                sum((judge(lines, logs[t], heads[t]) for t, lines, _ in seen), Judgement()),
                [each for t, _, state in seen for each in differences(state, rosters[t])],
            )
            if self._variant == "honest" and not outcome.faults:
                break
            await asyncio.sleep(1)
        return outcome

    def _outcome(self, logs: Mapping[str, Log], seen: Judgement, differences: list[str]) -> Outcome:
        told = Counter(kind for log in logs.values() for kind, _ in log.values())
        followers = self._followers
        return Outcome(
            store=self._kind,
            variant=self._variant,
            kills=self._cluster.kills,
            followers=len(followers),
            unconnected=sum(not each.connections for each in followers),
            reconnects=sum(max(0, each.connections - 1) for each in followers),
            lines_in_the_log=told.total(),
            holes=sum(max(log) - len(log) for log in logs.values()),
            told=dict(told),
            snapshots=sum(each.snapshots for each in followers),
            unasked_snapshots=sum(each.unasked for each in followers),
            seen=seen,
            differences=differences,
        )

    async def _logs(self) -> dict[str, Log]:
        return {tenant: await self._log(tenant) for tenant in self._keys}

    async def _log(self, tenant: str) -> Log:
        log: dict[int, tuple[str, str]] = {}
        while lines := await self._store.events(tenant, after=max(log, default=0), limit=PAGE):
            log |= {line.n: (f"worker.{line.type}", line.agent_id) for line in lines}
        return log

    async def _rosters(self) -> dict[str, State]:
        return {tenant: await self._roster(key) for tenant, key in self._keys.items()}

    async def _roster(self, key: str) -> State:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(timeout=10, trust_env=False) as http:
            answer = await http.get(f"{await self._cluster.url()}/v1/agents", headers=headers)
        answer.raise_for_status()
        return state_of(answer.json()["workers"])

    def _say(self, text: str) -> None:
        click.echo(f"{self._kind}, {self._variant}: {text}", err=True)


@asynccontextmanager
async def _meanwhile(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these while the block does; the failure of one ends it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
        yield
        for task in tasks:
            task.cancel()
