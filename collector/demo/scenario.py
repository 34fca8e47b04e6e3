"""Who does what next. No clock, no network: it is told how far time has come, and answers with
the beats that were sent by then.

Times are seconds from the moment that the demo opens; what was before it is negative. From one
seed comes one story, whenever it is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, NamedTuple

from collector.demo.members import Kind, Member, members
from contract.vocabulary import BEAT_SECONDS

# The story begins an hour, and the minute that a first step of it needs, before the opening.
BEGINS_AT = -3660.0
CYCLE_SECONDS = 180.0
# Of one worker, without being told otherwise: a change in half a minute.
CHANGES_A_WORKER = 0.035
# The log keeps so many lines, and most of them are to be of the present.
MOST_PAST_CHANGES = 2.0
# Every kind is deployed within this time, one worker after another.
DEPLOYMENT_SECONDS = 45.0
RESTART_SECONDS = 3.0
SHARED_SECONDS = 75.0
# An act has one worker in so many.
WORKERS_AN_ACT = 24
# So many have a past of an hour. The rest of a larger fleet came lately: to start takes seconds.
LONG_STANDING = 300
LATELY = -360.0
# How long who left, and who crashed, is away.
AWAY_SECONDS, DOWN_SECONDS = (20, 75), (80, 160)
# Longer in most of the past, for the hour's ups and downs; at the opening most are here.
PAST_AWAY_SECONDS, PAST_DOWN_SECONDS = (60, 400), (100, 300)
PAST_UNTIL = -500.0

Act = Callable[[float], Iterator["Sent"]]


class Sent(NamedTuple):
    """One heartbeat of one process."""

    at: float
    process: tuple[str, int]
    body: dict[str, Any]


class Scenario:
    """The fleet's story, told forwards."""

    def __init__(
        self,
        *,
        workers: int,
        seed: int,
        opened_at: float,
        changes_per_second: float | None = None,
    ) -> None:
        # Nothing is kept secret by it, and only this one can be repeated.
        self._random = Random(seed)  # noqa: S311
        self._opened_at = opened_at
        self._changes = changes_per_second
        self.members = members(workers, self._random)
        self._due: list[tuple[float, int, Act]] = []
        self._order = count()
        self._plan()

    def until(self, at: float) -> Iterator[Sent]:
        """What is sent up to that time, in order."""
        while self._due and self._due[0][0] <= at:
            when, _, act = heappop(self._due)
            yield from act(when)

    def next_at(self) -> float:
        """When there is something to be done again."""
        return self._due[0][0] if self._due else math.inf

    # The plan

    def _plan(self) -> None:
        for n, member in enumerate(self.members):
            self._at(self._arrival(n), partial(self._come, member, first=True))
        self._at(BEGINS_AT + 60, self._change)
        cycles = math.ceil(BEGINS_AT / CYCLE_SECONDS)
        self._at(cycles * CYCLE_SECONDS, partial(self._cycle, cycles))

    def _arrival(self, n: int) -> float:
        """Some were there all along, most came in the course of the hour, a few come now."""
        newcomers = len(self.members) // 12
        if n >= len(self.members) - newcomers:
            return self._random.uniform(6, 40)
        if n >= LONG_STANDING:
            return self._random.uniform(LATELY, 0)
        if self._random.random() < 0.45:
            return BEGINS_AT + self._random.uniform(0, 30)
        return self._random.uniform(BEGINS_AT + 120, LATELY)

    def _cycle(self, n: int, at: float) -> Iterator[Sent]:
        """What happens every three minutes; the first of them is what a newcomer sees first."""
        if n >= -1 or n % 4 == 0:
            self._at(at + 10, partial(self._deploy, n))
            self._at(at + 16, self._share_an_id)
            self._at(at + 35, self._leave_some)
            self._at(at + 60, self._crash_some)
        self._at(at + 5, self._leave_some)
        self._at(at + 150, self._leave_some)
        self._at(at + CYCLE_SECONDS - 8, self._crash_some)
        self._at(at + CYCLE_SECONDS, partial(self._cycle, n + 1))
        yield from ()

    def _at(self, when: float, act: Act) -> None:
        heappush(self._due, (when, next(self._order), act))

    # What one worker does

    def _come(self, member: Member, at: float, *, first: bool = False) -> Iterator[Sent]:
        if member.is_here:
            return
        was_there_before = first and at < BEGINS_AT + 60
        member.start(at - self._random.uniform(600, 86_400) if was_there_before else at)
        yield self._sent(member, at)
        self._at(self._next_beat(at), partial(self._beat, member, member.life))

    def _beat(self, member: Member, life: int, at: float) -> Iterator[Sent]:
        if member.life == life:
            yield self._sent(member, at)
            self._at(self._next_beat(at), partial(self._beat, member, life))

    def _leave(self, member: Member, at: float) -> Iterator[Sent]:
        member.end()
        yield self._sent(member, at)

    def _next_beat(self, at: float) -> float:
        return at + BEAT_SECONDS + self._random.uniform(-0.5, 0.5)

    def _sent(self, member: Member, at: float) -> Sent:
        return Sent(at, (member.agent_id, 0), member.body(at, self._random, self._opened_at))

    # Calls

    def _change(self, at: float) -> Iterator[Sent]:
        """Somebody takes a call, or ends one."""
        member = self._somebody()
        if member is not None:
            member.sessions += 1 if self._takes_one(member, at) else -1
            yield self._sent(member, at)
        self._at(at + self._random.expovariate(self._rate(at)), self._change)

    def _takes_one(self, member: Member, at: float) -> bool:
        if member.sessions in (0, member.kind.capacity):
            return member.sessions == 0
        wanted = 0.5 + 0.35 * math.sin(at / 140 + member.kind.capacity)
        likely = 0.75 if member.sessions < wanted * member.kind.capacity else 0.25
        return self._random.random() < likely

    def _rate(self, at: float) -> float:
        natural = CHANGES_A_WORKER * len(self.members)
        if at < 0:
            return min(natural, MOST_PAST_CHANGES)
        return natural if self._changes is None else self._changes

    def _somebody(self) -> Member | None:
        """Anybody who is here; of those without a call not every one, or nobody would be idle."""
        for _ in range(20):
            member = self._random.choice(self.members)
            if member.is_here and (member.sessions or self._random.random() < 0.3):
                return member
        return None

    # Acts

    def _some(self) -> list[Member]:
        """Who plays the next act: here, and alone under its id."""
        free = [each for each in self.members if each.is_here and not each.is_shared]
        # The last two stay, however small the fleet is.
        most = max(0, len(free) - 2)
        wanted = max(1, len(free) // WORKERS_AN_ACT)
        return self._random.sample(free, min(wanted, most))

    def _leave_some(self, at: float) -> Iterator[Sent]:
        for member in self._some():
            yield from self._leave(member, at)
            away = self._random.uniform(*(AWAY_SECONDS if at > PAST_UNTIL else PAST_AWAY_SECONDS))
            self._at(at + away, partial(self._come, member))

    def _crash_some(self, at: float) -> Iterator[Sent]:
        """They say nothing; that is the point."""
        for member in self._some():
            member.end()
            away = self._random.uniform(*(DOWN_SECONDS if at > PAST_UNTIL else PAST_DOWN_SECONDS))
            self._at(at + away, partial(self._come, member))
        yield from ()

    def _deploy(self, n: int, at: float) -> Iterator[Sent]:
        """A new version of one kind: whoever comes from now on has it, the others one by one."""
        kind = self._deployed(n)
        kind.minor += 1
        crew = [each for each in self.members if each.kind is kind]
        for nth, member in enumerate(crew):
            turn = at + nth * min(6.0, DEPLOYMENT_SECONDS / len(crew))
            self._at(turn, partial(self._restart, member))
        yield from ()

    def _deployed(self, n: int) -> Kind:
        cast = list({each.kind.name: each.kind for each in self.members}.values())
        return cast[n % len(cast)]

    def _restart(self, member: Member, at: float) -> Iterator[Sent]:
        if member.is_here and not member.is_shared and member.version != member.kind.version:
            yield from self._leave(member, at)
            self._at(at + RESTART_SECONDS, partial(self._come, member))

    def _share_an_id(self, at: float) -> Iterator[Sent]:
        """A second process, started by mistake with the id of one that runs."""
        for member in self._some()[:1]:
            member.is_shared = True
            self._at(at, partial(self._beat_beside, member, at, at + SHARED_SECONDS))
        yield from ()

    def _beat_beside(
        self, member: Member, started_at: float, ends_at: float, at: float
    ) -> Iterator[Sent]:
        if at >= ends_at:
            member.is_shared = False
            return
        body = member.body(at, self._random, self._opened_at)
        body |= {"host": "laptop-7", "started_at": round(self._opened_at + started_at, 3)}
        yield Sent(at, (member.agent_id, 1), body)
        self._at(self._next_beat(at), partial(self._beat_beside, member, started_at, ends_at))
