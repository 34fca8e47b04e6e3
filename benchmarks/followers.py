"""Subscribers of the feed that write down what they saw, and the judgement over it.

A follower comes back by itself after every cut, with the cursor it has; some cut themselves, and
now and then one of those begins afresh.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx2

from benchmarks.cluster import Cluster
from contract.vocabulary import COMPARED_FIELDS

STATE_FIELDS = ("reason", *COMPARED_FIELDS)
# Those who cut themselves do so after this long at most.
PATIENCE_SECONDS = 3.0
RETRY_SECONDS = 0.3
AFRESH = 0.3

Seen = tuple[int, str, str]  # number, type, agent_id
State = dict[str, tuple[Any, ...]]
Log = Mapping[int, tuple[str, str]]


@dataclass
class Stretch:
    """What came after one snapshot, until the next."""

    after: int
    seen: list[Seen] = field(default_factory=list)

    @property
    def last(self) -> int:
        return max((n for n, _, _ in self.seen), default=self.after)


def state_of(workers: Iterable[dict[str, Any]]) -> State:
    """What a change can change, by agent_id."""
    return {w["agent_id"]: tuple(w[name] for name in STATE_FIELDS) for w in workers}


class Follower:
    """One subscriber of one tenant, on one stream after the other."""

    def __init__(self, tenant: str, key: str, cluster: Cluster, *, is_restless: bool) -> None:
        self.tenant = tenant
        self.connections = 0
        self.snapshots = 0
        # Given to one that came with a cursor, which asks for what came after it.
        self.unasked = 0
        self._stretches = [Stretch(0)]
        self._state: State = {}
        self._key = key
        self._cluster = cluster
        self._is_restless = is_restless
        self._calm = False
        self._cursor: str | None = None
        self._came_with: str | None = None
        self._chunks: list[dict[str, Any]] = []

    async def follow(self) -> None:
        """Run until cancelled."""
        # A stream is silent between keepalives, and being refused takes no time.
        timeout = httpx2.Timeout(5, read=30)
        async with httpx2.AsyncClient(timeout=timeout, trust_env=False) as http:
            while True:
                url = await self._cluster.url()
                with suppress(httpx2.TransportError, TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await self._listen(http, url)
                if self._is_restless and not self._calm and random.random() < AFRESH:
                    self._cursor = None
                await asyncio.sleep(random.uniform(0, RETRY_SECONDS))

    def seen(self) -> tuple[list[Stretch], State]:
        """What it saw and knows now, as it stays while more comes."""
        return copy.deepcopy(self._stretches), dict(self._state)

    def calm_down(self) -> None:
        """From here on, always come back with the cursor: a snapshot would heal what is wrong."""
        self._calm = True

    def _patience(self) -> float | None:
        return random.uniform(0.1, PATIENCE_SECONDS) if self._is_restless else None

    async def _listen(self, http: httpx2.AsyncClient, url: str) -> None:
        headers = {"Authorization": f"Bearer {self._key}"}
        if self._cursor is not None:
            headers["Last-Event-ID"] = self._cursor
        self._came_with, self._chunks = self._cursor, []
        async with http.stream("GET", f"{url}/events", headers=headers) as answer:
            if answer.status_code == 200:
                self.connections += 1
                async for event, cursor, body in _frames(answer):
                    self._take(event, cursor, body)

    def _take(self, event: str, cursor: str | None, body: dict[str, Any]) -> None:
        if event == "snapshot":
            self._chunks.append(body)
            if not body["more"]:
                self._begin_anew(_number(body))
        elif event.startswith("worker."):
            self._note(event, _number(body), body["worker"])
        # As a browser does it: a frame without an id leaves the last one as it was.
        self._cursor = cursor or self._cursor

    def _begin_anew(self, n: int) -> None:
        self.snapshots += 1
        self.unasked += self._came_with is not None
        self._stretches.append(Stretch(n))
        self._state = state_of(w for chunk in self._chunks for w in chunk["workers"])
        self._chunks = []

    def _note(self, event: str, n: int, worker: dict[str, Any]) -> None:
        self._stretches[-1].seen.append((n, event, worker["agent_id"]))
        self._state |= state_of([worker])
        if event == "worker.removed":
            del self._state[worker["agent_id"]]


async def _frames(
    answer: httpx2.Response,
) -> AsyncIterator[tuple[str, str | None, dict[str, Any]]]:
    """Event, id and data of each frame that came whole: a kill may leave half of one."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "data" in fields:
                yield fields["event"], fields.get("id"), json.loads(fields["data"])
            fields = {}


def _number(body: dict[str, Any]) -> int:
    return int(body["cursor"].rpartition(".")[2])


@dataclass(frozen=True)
class Judgement:
    """How what one or more followers saw differs from the log."""

    seen: int = 0
    missing: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    unlike_the_log: int = 0

    def __add__(self, other: Judgement) -> Judgement:
        return Judgement(*(a + b for a, b in zip(self._counts(), other._counts(), strict=True)))

    def _counts(self) -> tuple[int, ...]:
        return (
            self.seen,
            self.missing,
            self.duplicated,
            self.out_of_order,
            self.unlike_the_log,
        )


def judge(stretches: Sequence[Stretch], log: Log, head: int) -> Judgement:
    """Each stretch is the log from its snapshot on; the last one at least up to `head`.

    The log is read after the follower was looked at, and so has all that was there to see.
    """
    *earlier, newest = stretches
    total = _judge(newest, log, max(head, newest.last))
    for stretch in earlier:
        total += _judge(stretch, log, stretch.last)
    # A snapshot that is older than what was seen before it goes back in time.
    back = sum(later.after < before.last for before, later in pairwise(stretches))
    return total + Judgement(out_of_order=back)


def _judge(stretch: Stretch, log: Log, end: int) -> Judgement:
    numbers = [n for n, _, _ in stretch.seen]
    fresh = {n for n in numbers if n > stretch.after}
    expected = {n for n in log if stretch.after < n <= end}
    return Judgement(
        seen=len(numbers),
        missing=len(expected - fresh),
        duplicated=len(numbers) - len(fresh),
        out_of_order=sum(later < before for before, later in pairwise(numbers)),
        unlike_the_log=sum(log.get(n) != (event, who) for n, event, who in stretch.seen),
    )


def differences(state: State, roster: State) -> list[str]:
    """The workers that a follower has otherwise than the roster, or has alone, or lacks."""
    return [
        f"{each}: follower {state.get(each)}, roster {roster.get(each)}"
        for each in sorted(state.keys() | roster.keys())
        if state.get(each) != roster.get(each)
    ]
