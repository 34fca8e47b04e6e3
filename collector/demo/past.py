"""The hour before the opening, lived through in seconds: the real rules over a real store, with a
clock that somebody turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collector.clock import Clock
from collector.demo.scenario import BEGINS_AT, Scenario, Sent
from collector.gaps import Listener
from collector.store.protocol import Store
from collector.sweep import Sweep
from collector.values import SECOND, Beat
from collector.workers import microseconds
from contract.vocabulary import COMPARED_FIELDS

TICK_SECONDS = 10
# When nobody listened: 25 minutes before the opening, for two minutes.
GAP = (-1500, -1380)
# A beat that says nothing new goes unrecorded this soon after another: nobody could tell.
DULL_SECONDS = 25.0


class TurnedClock:
    """Stands where it was put."""

    def __init__(self) -> None:
        self.at = 0

    def now(self) -> int:
        return self.at

    def skew(self) -> int:
        return 0

    def anchor(self, reading: int) -> None:
        """Nobody's but the story's."""


async def live_through(
    scenario: Scenario, store: Store, *, tenant_id: str, opened_at: int, clock: Clock
) -> None:
    """From the story's beginning up to what `clock` says, which goes on meanwhile."""
    turned = TurnedClock()
    listener = Listener(store, turned, collector_id="yesterday")
    sweep = Sweep(store, turned, gone=listener.gone)
    news = _News()
    at = BEGINS_AT
    while opened_at + at * SECOND <= clock.now():
        turned.at = opened_at + round(at * SECOND)
        sent = list(scenario.until(at))
        if GAP[0] < at < GAP[1]:
            news.forget()
        else:
            await listener.listen()
            beats = [_beat(tenant_id, each, turned.at) for each in news.of(sent)]
            if beats:
                await store.commit(beats, now=turned.at, gone=listener.gone())
            await sweep.tick()
        at += TICK_SECONDS


class _News:
    """Of each tick's beats, the newest of each worker, if there is anything in it."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], tuple[float, list[Any]]] = {}

    def forget(self) -> None:
        """Nobody heard what was said."""
        self._told.clear()

    def of(self, sent: Iterable[Sent]) -> list[Sent]:
        newest = {each.body["agent_id"]: each for each in sent if not self._is_dull(each)}
        return [newest[agent_id] for agent_id in sorted(newest)]

    def _is_dull(self, sent: Sent) -> bool:
        said = [sent.body[field] for field in COMPARED_FIELDS]
        before = self._told.get(sent.process)
        if before is not None and before[1] == said and sent.at - before[0] < DULL_SECONDS:
            return True
        self._told[sent.process] = (sent.at, said)
        return False


def _beat(tenant_id: str, sent: Sent, stamp: int) -> Beat:
    """As of its tick: what is committed together has one time, so that the log is in order."""
    times = {field: microseconds(sent.body[field]) for field in ("started_at", "ts")}
    return Beat(**{**sent.body, **times, "tenant_id": tenant_id, "last_seen": stamp})
