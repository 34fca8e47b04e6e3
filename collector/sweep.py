"""Notices silence. It only announces: the roster is true without it.

Every 10 s one scan finds the workers that have been silent for a while, normally none; each second
those past the TTL are announced. Nothing is kept in memory for a worker that beats.
"""

from __future__ import annotations

from collections.abc import Callable

from collector.clock import Clock, every
from collector.store.protocol import Store
from collector.values import SECOND, TTL, Silent

TICK_SECONDS = 1.0
SCAN_EVERY = 10 * SECOND
# Silent for this long at a scan: nobody can pass the TTL between two scans unseen.
WATCH_AFTER = TTL - SCAN_EVERY - 5 * SECOND
MAX_WATCHED = 100_000
CHUNK = 1000


class Sweep:
    """One of any number: each silent worker is announced by whoever gets to its row first."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        gone: Callable[[], int],
    ) -> None:
        self._store = store
        self._clock = clock
        self._gone = gone
        self._watched: list[Silent] = []
        self._due: list[Silent] = []
        self._scanned_at = -SCAN_EVERY

    async def follow(self) -> None:
        await every(TICK_SECONDS, self.tick, "the sweep missed a turn")

    async def tick(self) -> None:
        """Announce whoever is past the TTL now."""
        now = self._clock.now()
        if now - self._scanned_at >= SCAN_EVERY:
            self._watched = await self._store.silent(before=now - WATCH_AFTER, limit=MAX_WATCHED)
            self._scanned_at = now
        before = min(now - TTL, self._gone())
        # Once more after its turn: a row that a writer held just then was passed over.
        again, self._due = self._due, [s for s in self._watched if s.last_seen < before]
        self._watched = [s for s in self._watched if s.last_seen >= before]
        await self._announce(sorted({*again, *self._due}), before)

    async def _announce(self, silent: list[Silent], before: int) -> None:
        for start in range(0, len(silent), CHUNK):
            await self._store.announce_lost(silent[start : start + CHUNK], before=before)
