"""A worker's history as a reader may see it, and how much of it the worker was online."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from collector.store.protocol import Store
from collector.values import SECOND, TTL, Event, Gap, Spell

HOUR = 3600 * SECOND
WINDOWS = {"24h": 24 * HOUR, "7d": 7 * 24 * HOUR}
# The newest ones; a worker that changes every second has 86,400 a day.
MAX_LINES = 1000


class Uptime(NamedTuple):
    """How long a worker was online, of the time that counts; `gap` is what does not."""

    online: int
    counted: int
    gap: int

    @property
    def ratio(self) -> float | None:
        return self.online / self.counted if self.counted else None


@dataclass(frozen=True, slots=True)
class Timeline:
    """What was with one worker since a time; its uptime is of windows of its own."""

    spells: list[Spell]
    lines: list[Event]
    gaps: list[Gap]
    uptimes: dict[str, Uptime]


async def read(
    store: Store, tenant_id: str, agent_id: str, *, since: int, kept_since: int, now: int
) -> Timeline | None:
    """The worker's timeline, or None if there is no such worker.

    What was before `kept_since` may be pruned already, and is not counted in its uptime.
    """
    # The row first: what is read after it is only newer than its last_seen.
    worker = await store.worker(tenant_id, agent_id)
    if worker is None:
        return None
    reach = min(since, now - max(WINDOWS.values()))
    recorded = await store.spells(tenant_id, agent_id, since=reach)
    gaps = await store.gaps(since=reach)
    lines = await store.worker_events(tenant_id, agent_id, since=since, limit=MAX_LINES)
    spells = as_read(recorded, last_seen=worker.last_seen, now=now)
    known_since = max(worker.first_seen, kept_since)
    return Timeline(
        spells=[s for s in spells if s.online_until is None or s.online_until > since],
        lines=lines,
        gaps=[gap for gap in gaps if gap.ended_at > since],
        uptimes=_uptimes(spells, gaps, known_since, now),
    )


def _uptimes(
    spells: Sequence[Spell], gaps: Sequence[Gap], known_since: int, now: int
) -> dict[str, Uptime]:
    return {
        name: uptime(spells, gaps, since=max(known_since, now - length), now=now)
        for name, length in WINDOWS.items()
    }


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
