"""What a measurement finds: a figure, its spread, and the goal that it is held against."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Goal:
    """What a figure ought to be."""

    value: float
    sense: Literal["at least", "at most"]

    def is_met_by(self, figure: float) -> bool:
        return figure >= self.value if self.sense == "at least" else figure <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.sense == 'at least' else '≤'} {self.value:g}"


def at_least(value: float) -> Goal:
    return Goal(value, "at least")


def at_most(value: float) -> Goal:
    return Goal(value, "at most")


@dataclass(frozen=True)
class Figure:
    """One line of the table; each repetition gives one value, of windows next to one another."""

    name: str
    values: Sequence[float]
    # None where it is only reported.
    goal: Goal | None = None
    # Empty for a ratio: noise hits both of its windows alike, so it means the same elsewhere.
    unit: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.goal.is_met_by(self.median)

    def as_json(self) -> dict[str, Any]:
        """All repetitions, and what they come to."""
        return asdict(self) | {"median": self.median, "met": self.met}

    def row(self) -> tuple[str, str, str, str, str]:
        spread = f"{rounded(min(self.values))}–{rounded(max(self.values))}"
        figure = f"{rounded(self.median)} {self.unit}".strip()
        goal = "" if self.goal is None else str(self.goal)
        return self.name, figure, spread, goal, {None: "", True: "met", False: "not met"}[self.met]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Repetition by repetition."""
    return [a / b for a, b in zip(above, below, strict=True)]


def rounded(value: float) -> str:
    """Three digits that count; large figures whole."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
