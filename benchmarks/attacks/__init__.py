"""The attacks that a collector has to withstand, each with the defence that it is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.attacks import floods, halves, hangs, reads
from benchmarks.besieged import Besieged, Respect, Scale
from benchmarks.undefended import Defence


@dataclass(frozen=True)
class Control:
    """Without that defence the attack has to be seen to succeed, in that respect."""

    without: Defence
    shows: Respect


@dataclass(frozen=True)
class Attack:
    """An attack on a collector, and how that collector is set up."""

    make: Callable[[Besieged], Awaitable[None]]
    controls: Sequence[Control]
    settings: Callable[[Scale], Mapping[str, str]] = field(default=lambda _: {})
    # The most that the collector may have open; None where it may have what we may.
    descriptors: Callable[[Scale], int | None] = field(default=lambda _: None)
    is_behind_a_stretch: bool = False


ATTACKS: Mapping[str, Attack] = {
    "pipelining": Attack(floods.pipeline, [Control("bound on pipelining", "memory")]),
    "heads": Attack(floods.heads, [Control("bound on heads", "memory")]),
    "half requests": Attack(
        halves.halves,
        [Control("deadline of a request", "ends")],
        settings=halves.settings,
        descriptors=halves.descriptors,
    ),
    "hung writer": Attack(
        hangs.hung_writer,
        [
            Control("bound on a commit", "beats"),
            Control("look at what hangs", "ready"),
            Control("end of a stop", "stops"),
        ],
        settings=hangs.settings,
        is_behind_a_stretch=True,
    ),
    "locked table": Attack(hangs.locked_table, [Control("bound on a commit", "beats")]),
    "neighbours": Attack(reads.neighbours, [Control("share of reads", "memory")]),
}
