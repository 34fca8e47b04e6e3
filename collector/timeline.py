"""A worker's history as a reader may see it, and how much of it the worker was online."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from collector.values import SECOND, TTL, Gap, Spell

HOUR = 3600 * SECOND
WINDOWS = {"24h": 24 * HOUR, "7d": 7 * 24 * HOUR}


class Uptime(NamedTuple):
    """How long a worker was online, of the time that counts; `gap` is what does not."""

    online: int
    counted: int
    gap: int

    @property
    def ratio(self) -> float | None:
        return self.online / self.counted if self.counted else None


def as_read(spells: Iterable[Spell], *, last_seen: int, now: int) -> list[Spell]:
    """The spells as a reader at `now` may see them.

    Silence ends an open one at the TTL, announced or not. One that began after `now` is of a beat
    that came between two reads, and is left to the next reader.
    """
    return [_read_as(spell, last_seen, now) for spell in spells if spell.online_from <= now]


def _read_as(spell: Spell, last_seen: int, now: int) -> Spell:
    is_of_a_later_beat = spell.online_from > last_seen
    if spell.online_until is not None or is_of_a_later_beat or now - last_seen <= TTL:
        return spell
    return Spell(spell.online_from, last_seen + TTL, "lost")


def uptime(spells: Iterable[Spell], gaps: Iterable[Gap], *, since: int, now: int) -> Uptime:
    """How much of the time from `since` to `now` the spells cover, as `as_read` gives them.

    The collectors' gaps count neither as online nor as offline: nobody listened.
    """
    online = [
        (spell.online_from, now if spell.online_until is None else spell.online_until)
        for spell in spells
    ]
    unheard = [(gap.began_at, gap.ended_at) for gap in gaps]
    gap = _covered(unheard, since, now)
    return Uptime(
        online=_covered([*online, *unheard], since, now) - gap,
        counted=max(0, now - since) - gap,
        gap=gap,
    )


def _covered(spans: Iterable[tuple[int, int]], start: int, end: int) -> int:
    """How much of start..end lies in at least one of the spans."""
    covered, reached = 0, start
    for begins, ends in sorted(spans):
        until = min(ends, end)
        covered += max(0, until - max(begins, reached))
        reached = max(reached, until)
    return covered
