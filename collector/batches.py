"""What a follower of the feed is given, and which part of it a follower wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from collector.documents import Document
from collector.values import Event, RosterQuery
from collector.workers import project_line, seconds


class Line:
    """One line of the log as the wire has it; what is made of it is made once."""

    def __init__(self, event: Event, epoch: str) -> None:
        self.n = event.n
        self.type = f"worker.{event.type}"
        self.cursor = f"{epoch}.{event.n}"
        self._event = event

    @cached_property
    def worker(self) -> dict[str, Any]:
        return project_line(self._event)

    @cached_property
    def body(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "cursor": self.cursor,
            "at": seconds(self._event.at),
            "reason": self._event.reason,
            "worker": self.worker,
        }

    @cached_property
    def encoded(self) -> dict[object, bytes]:
        """What was made of this line, by what made it; shared by all who follow."""
        return {}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole roster at a place in the log: where a follower begins, or begins again."""

    document: Document


@dataclass(frozen=True, slots=True)
class Lines:
    """What came since the follower's last batch, in order."""

    lines: list[Line]
    cursor: str
    encoded: dict[object, bytes]


@dataclass(frozen=True, slots=True)
class Vitals:
    """Who beat lately, with what figures; no part of the log."""

    document: Document


Batch = Snapshot | Lines | Vitals
T = TypeVar("T", Line, Lines)


def once(told: T, encode: Callable[[T], bytes]) -> bytes:
    """What `encode` makes of it, made for the first follower and shared by all."""
    if encode not in told.encoded:
        told.encoded[encode] = encode(told)
    return told.encoded[encode]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which workers a follower wants to hear of."""

    agent_name: str | None = None
    project: str | None = None
    region: str | None = None

    def matches(self, worker: dict[str, Any]) -> bool:
        wanted = (
            ("agent_name", self.agent_name),
            ("project", self.project),
            ("region", self.region),
        )
        return all(value is None or worker[name] == value for name, value in wanted)

    def of(self, batch: Lines) -> Lines:
        """What it matches of the batch; shared by all who want everything."""
        if self.is_open:
            return batch
        lines = [line for line in batch.lines if self.matches(line.worker)]
        return Lines(lines, batch.cursor, {})

    @property
    def is_open(self) -> bool:
        return self.agent_name is None and self.project is None and self.region is None

    def query(self, *, seen_since: int | None = None) -> RosterQuery:
        return RosterQuery(
            agent_name=self.agent_name,
            project=self.project,
            region=self.region,
            seen_since=seen_since,
        )
