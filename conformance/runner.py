"""Drives the cases against a target and keeps what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

import httpx2

from conformance.case import Case
from conformance.expect import Breach
from conformance.sockets import FRAMINGS, Address, Framing
from conformance.target import (
    Description,
    Refused,
    Target,
    Unreachable,
    describe,
    why_not,
)
from conformance.trial import Trial
from conformance.wire import (
    FOREIGN_LIMITS,
    FOREIGN_SOCKETS,
    LIMITS,
    ROSTER,
    SOCKETS,
    TIMEOUT,
    address,
    no_cookies,
)

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
        listening = Address.of(target.url, most=FOREIGN_SOCKETS if is_foreign else SOCKETS)
        trial = Trial(target, http, listening)
        await admit(trial)
        outcomes: dict[str, Outcome] = {}
        framings = FRAMINGS if "sockets" in description.capabilities else (None,)

        async def judge(case: Case, trials: Sequence[Trial]) -> None:
            outcomes[case.name] = await _judge(case, trials, description.capabilities)
            tell(outcomes[case.name])

        try:
            together = [case for case in cases if case.phase == "together"]
            await _together(trial, together, framings, judge)
            for phase in ("alone", "last"):
                for case in cases:
                    if case.phase == phase:
                        await _together(trial, [case], framings, judge)
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
    # A key's first use may be slow; no case should wait for it beside all the others.
    for caller in (trial.ingest, trial.read):
        if caller.key is not None:
            await caller.get(ROSTER)


async def _together(
    trial: Trial,
    cases: Sequence[Case],
    framings: Sequence[Framing | None],
    judge: Callable[[Case, Sequence[Trial]], Awaitable[None]],
) -> None:
    turns = [
        (case, [trial.framed(each) for each in (framings if case.framed else (None,))])
        for case in cases
    ]
    clock = trial.target.clock
    for _, trials in turns:
        for _ in trials:
            clock.enter()  # before any of them begins: else the first to wait would move the time
    await asyncio.gather(*(judge(case, trials) for case, trials in turns))


async def _judge(case: Case, trials: Sequence[Trial], capabilities: frozenset[str]) -> Outcome:
    """The case in each of its framings, at once; it fails by the first of them that does."""
    missing = [each for each in case.needs if each not in capabilities]
    found = await asyncio.gather(*(_judge_one(case, trial, missing) for trial in trials))
    for trial, outcome in zip(trials, found, strict=True):
        if outcome.result == "failed" and trial.posts.framing is not None:
            return replace(outcome, seen=f"{trial.posts.framing.name}: {outcome.seen}")
    return _disagreement(case, trials) or found[0]


async def _judge_one(case: Case, trial: Trial, missing: Sequence[str]) -> Outcome:
    try:
        if missing:
            return _outcome(case, "skipped", seen=why_not(missing))
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
    finally:
        trial.target.clock.leave()
    return _outcome(case, "passed")


def _disagreement(case: Case, trials: Sequence[Trial]) -> Outcome | None:
    """Tell where two framings of the same heartbeat got different answers."""
    one = trials[0].posts
    for other in (trial.posts for trial in trials[1:]):
        assert one.framing is not None
        assert other.framing is not None
        for nth, (a, b) in enumerate(zip_longest(one.gists, other.gists), 1):
            if a != b:
                seen = f"heartbeat {nth}: {one.framing.name} {a}; {other.framing.name} {b}"
                return _outcome(case, "failed", "the same answer in every framing", seen)
    return None


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
