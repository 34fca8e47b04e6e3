"""The collector's own silence, which is not the workers'.

Every collector says every 5 s that it listens. When none of a store's did for more than 15 s, that
is a gap, and nobody is announced lost for a silence that nobody could have heard broken.
"""

from __future__ import annotations

import logging

from collector.clock import Clock, every
from collector.errors import StoreError
from collector.store.protocol import Store
from collector.values import GAP, SECOND, Ahead, Gap
from collector.workers import ended, gone_before

LISTEN_EVERY_SECONDS = 5.0
AGAIN_SECONDS = 1.0
# Gaps that may still matter: a crash loop of an hour is looked through to its end.
RECENT = 3600 * SECOND
# For this long after a gap, readers of the roster are told of it.
TOLD_FOR = 60 * SECOND
# How often all workers are looked through for stamps ahead of now, and how many are mended at once.
LOOK_EVERY = 60 * SECOND
MEND_AT_ONCE = 10_000
_log = logging.getLogger(__name__)


class Listener:
    """This collector's own beats, and what is known of the store's gaps."""

    def __init__(self, store: Store, clock: Clock, collector_id: str) -> None:
        self._store = store
        self._clock = clock
        self._collector_id = collector_id
        self._gaps: list[Gap] = []
        # When the store last took this collector's own beat, and when the one under way began.
        self.listened_at = 0
        self.listening_since: int | None = None
        # The stamps ahead of now that were found when they were last looked for, and when that was.
        self.ahead: Ahead | None = None
        self._looked_at = -LOOK_EVERY
        # When one failed, until one succeeds.
        self.failed_at: int | None = None

    async def listen(self) -> None:
        """Say that this collector listens; before the first beat, so that a gap is known to it."""
        try:
            await self._listen()
        except StoreError:
            self.failed_at = self._clock.now()
            raise
        finally:
            self.listening_since = None
        self.failed_at = None

    async def _listen(self) -> None:
        if self._is_time_to_look(self._begin()):
            await self._look(self._begin())
            # Many steps take longer than a gap: between them, this collector says that it listens.
            while self.ahead is not None and await self._mend_some(self._begin()):
                await self._say(self._begin())
        await self._say(self._begin())

    async def _mend_some(self, now: int) -> int:
        return await self._store.mend(now=now, limit=MEND_AT_ONCE)

    def _begin(self) -> int:
        """The time of the next step, which alone is looked at for how long it hangs."""
        self.listening_since = self._clock.now()
        return self.listening_since

    async def _say(self, now: int) -> None:
        gap = await self._store.listen(self._collector_id, now=now)
        if gap is not None:
            _log.warning("no collector listened for %d s", (gap.ended_at - gap.began_at) // SECOND)
        self._gaps = await self._store.gaps(since=now - RECENT)
        self.listened_at = now

    def _is_time_to_look(self, now: int) -> bool:
        """Every minute; at once where time was set back, and until all is well."""
        return self.ahead is not None or not 0 <= now - self._looked_at < LOOK_EVERY

    async def _look(self, now: int) -> None:
        """Look for stamps ahead of now, which some wrong clock made."""
        found = await self._store.ahead(now=now)
        self.ahead = found if found.is_a_fault else None
        if self.ahead is not None:
            _log.warning("%s of now, by a wrong clock; they are mended", self.ahead)
        self._looked_at = now

    def gone(self) -> int:
        """The stamp below which a silence counts now.

        A process that was itself stopped, or could not reach its store, does not know yet what
        gap the next `listen` will find: until then no silence counts.
        """
        now = self._clock.now()
        if now - self.listened_at > GAP:
            return 0
        return gone_before(self._gaps, now)

    def recent(self) -> Gap | None:
        """The newest gap, if it ended within the last minute: the roster says so.

        From memory, because every reader asks: one that another collector found is known 5 s later.
        """
        now = self._clock.now()
        told = [gap for gap in ended(self._gaps, now) if now - gap.ended_at <= TOLD_FOR]
        return max(told, key=lambda gap: gap.ended_at, default=None)

    async def follow(self) -> None:
        await every(self._pause, self.listen, "not listening")

    def _pause(self) -> float:
        """A store that is back is noticed soon."""
        return LISTEN_EVERY_SECONDS if self.failed_at is None else AGAIN_SECONDS
