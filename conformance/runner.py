"""Drives the cases against a target and keeps what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import httpx2

from conformance.case import Case
from conformance.expect import Breach
from conformance.target import (
    Description,
    Refused,
    Target,
    Unreachable,
    describe,
    why_not,
)
from conformance.trial import Trial
from conformance.wire import FOREIGN_LIMITS, LIMITS, ROSTER, TIMEOUT, address, no_cookies

# A case waits for one TTL and a little, or for its turn; past this it hangs.
CASE_SECONDS = 120

Result = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case."""

    rule: str
    level: str
    name: str
    claim: str
    result: Result
    expected: str = ""
    seen: str = ""


Tell = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Results:
    """What came of all of them."""

    target: str
    description: Description
    outcomes: Sequence[Outcome]

    def of(self, level: str) -> list[Outcome]:
        return [each for each in self.outcomes if each.level == level]

    @property
    def conforms(self) -> bool:
        """Every core case passed; a skipped one is no conformance."""
        return all(each.result == "passed" for each in self.of("core"))

    @property
    def judged(self) -> int:
        """How many cases said anything."""
        return sum(each.result != "skipped" for each in self.outcomes)

    @property
    def is_clean(self) -> bool:
        """It conforms, and breaks nothing of what it says it can do beyond that."""
        return self.conforms and not any(each.result == "failed" for each in self.outcomes)


async def run(target: Target, cases: Sequence[Case], tell: Tell = lambda _: None) -> Results:
    """All cases whose needs the target meets; the others are skipped, and say why."""
    is_foreign = target.control is None
    limits = FOREIGN_LIMITS if is_foreign else LIMITS
    async with httpx2.AsyncClient(
        base_url=target.url,
        limits=limits,
        timeout=TIMEOUT,
        trust_env=is_foreign,
        cookies=no_cookies(),
    ) as http:
        description = await describe(target, http)
        trial = Trial(target, http)
        await admit(trial)
        outcomes: dict[str, Outcome] = {}

        async def judge(case: Case) -> None:
            outcomes[case.name] = await _judge(case, trial, description.capabilities)
            tell(outcomes[case.name])

        try:
            await _together(trial, [case for case in cases if case.phase == "together"], judge)
            for phase in ("alone", "last"):
                for case in cases:
                    if case.phase == phase:
                        await _together(trial, [case], judge)
        finally:
            await _clean_up(trial, description.capabilities)
    return Results(target.name, description, [outcomes[case.name] for case in cases])


async def admit(trial: Trial) -> None:
    """Before anything is judged: there is a collector, and these are keys of two of its tenants."""
    name = trial.name("preflight")
    for option, caller in (("--key", trial.a), ("--other-key", trial.b)):
        read = await caller.get(ROSTER)
        beat = await caller.beat(name if caller is trial.a else trial.name("preflight"))
        for answer, wanted in ((read, 200), (beat, 202)):
            if answer.status in (401, 403):
                raise Refused(f"{option} is refused: {answer.request} answered {answer.status}")
            if answer.status != wanted:
                raise Unreachable(
                    f"{trial.target.url} does not look like a collector: {answer.request} "
                    f"answered {answer.status}, not {wanted}"
                )
    if name in (await trial.b.get(ROSTER)).text:
        raise Refused("--key and --other-key are of one tenant; the suite needs two")


async def _together(
    trial: Trial, cases: Sequence[Case], judge: Callable[[Case], Awaitable[None]]
) -> None:
    clock = trial.target.clock
    for _ in cases:
        clock.enter()  # before any of them begins: else the first to wait would move the time

    async def one(case: Case) -> None:
        try:
            await judge(case)
        finally:
            clock.leave()

    await asyncio.gather(*map(one, cases))


async def _judge(case: Case, trial: Trial, capabilities: frozenset[str]) -> Outcome:
    missing = [each for each in case.needs if each not in capabilities]
    if missing:
        return _outcome(case, "skipped", seen=why_not(missing))
    try:
        async with asyncio.timeout(CASE_SECONDS):
            await case.run(trial)
    except Breach as breach:
        return _outcome(case, "failed", expected=breach.expected, seen=breach.seen)
    except httpx2.HTTPError as error:
        return _outcome(case, "failed", "an answer", f"{type(error).__name__}: {error}")
    except KeyError as error:
        return _outcome(case, "failed", f"a field {error}", "it is missing")
    except Exception as error:  # what a case did not foresee is a breach too, told as it came
        return _outcome(case, "failed", "what the case reads", f"{type(error).__name__}: {error}")
    return _outcome(case, "passed")


def _outcome(case: Case, result: Result, expected: str = "", seen: str = "") -> Outcome:
    return Outcome(case.rule, case.level, case.name, case.claim, result, expected, seen)


async def _clean_up(trial: Trial, capabilities: frozenset[str]) -> None:
    """Take the run's workers off a server that goes on without us, if it lets us."""
    if trial.target.control is not None or "removal" not in capabilities:
        return
    for caller in (trial.a, trial.b):
        ours: list[str] = []
        # One that can't even show its roster was judged for that already.
        with suppress(Breach, httpx2.HTTPError, LookupError, TypeError, AttributeError):
            ours = [w["agent_id"] for w in await caller.workers() if trial.token in w["agent_id"]]
        for agent_id in ours:
            with suppress(httpx2.HTTPError):
                await caller.send("DELETE", address(agent_id))
