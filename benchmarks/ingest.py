"""Ratios of rates, repetition by repetition."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.places import Kind

Name = tuple[Kind | None, str]
Rates = Mapping[Name, float]


@dataclass(frozen=True)
class Ratio:
    """Each repetition gives one ratio, of windows next to one another; noise hits both alike."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, repetitions: Sequence[Rates], above: Name, below: Name) -> Ratio:
        ratios = [each[above] / each[below] for each in repetitions]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}–{self.most:.2f})"
