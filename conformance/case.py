"""A case is a value: one claim about one rule of the contract, and how to see whether it holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Literal

from conformance import cases

if TYPE_CHECKING:
    from conformance.trial import Trial

Level = Literal["core", "extended"]
# Most cases run together on one timeline. A case that would disturb the others runs alone, after
# them; one that judges the whole run comes last.
Phase = Literal["together", "alone", "last"]
Run = Callable[["Trial"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """Its function's name is its claim."""

    rule: str
    level: Level
    needs: tuple[str, ...]
    phase: Phase
    # Judged in every framing of its heartbeats, which must all be answered alike.
    framed: bool
    room: str
    run: Run

    @property
    def name(self) -> str:
        return f"{self.room}.{self.run.__name__}"

    @property
    def claim(self) -> str:
        return self.run.__name__.replace("_", " ")


_CASES: list[Case] = []


def case(
    *,
    rule: str,
    level: Level,
    needs: str | tuple[str, ...] = (),
    phase: Phase = "together",
    framed: bool = False,
) -> Callable[[Run], Run]:
    """Make the function a case; it is skipped where a capability that it needs is missing.

    A case on bodies, limits or errors is `framed`: a server may read a heartbeat that comes in one
    piece in another way than one that does not.
    """
    wanted = (needs,) if isinstance(needs, str) else needs

    def register(run: Run) -> Run:
        room = run.__module__.rpartition(".")[2]
        _CASES.append(Case(rule, level, wanted, phase, framed, room, run))
        return run

    return register


def all_cases() -> list[Case]:
    """Every case there is, by rule."""
    for module in iter_modules(cases.__path__):
        import_module(f"{cases.__name__}.{module.name}")
    return sorted(_CASES, key=lambda each: (int(each.rule.removeprefix("R")), each.name))
