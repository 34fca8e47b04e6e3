"""Forgets what is old: workers long gone, sessions that are over, old ends of logs, spells, audit.

Every collector does; each row has one winner. A batch is one short transaction with a pause after
it, so that no beat waits for more than one of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from collector.clock import Clock
from collector.errors import StoreError
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import SECOND

EVERY_SECONDS = 600.0
# After a long time away, those who are alive get to beat before the others are forgotten.
FIRST_SECONDS = 60.0
BATCH = 500
PAUSE_SECONDS = 0.02
# In one turn, of each kind: a log that grows as fast as it is cut leaves the others their turn.
MAX_BATCHES = 200
DAY = 86_400 * SECOND
_log = logging.getLogger(__name__)


class Retention:
    """What the settings say to keep, and the loop that removes the rest."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    async def follow(self) -> None:
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            has_more = await self._has_more()
            await asyncio.sleep(PAUSE_SECONDS if has_more else EVERY_SECONDS)

    async def _has_more(self) -> bool:
        try:
            return await self.tick()
        except StoreError as error:
            _log.warning("old rows stay for now: %s", error)
            return False

    async def tick(self) -> bool:
        """Remove what is too old now; True if there was more of it than goes in one turn.

        Forgetting comes before the logs are cut, because it writes to them.
        """
        now, keep, store = self._clock.now(), self._settings, self._store
        unseen_since = _days_before(now, keep.forget_after_days)
        log_since = _days_before(now, keep.events_keep_days)
        await store.prune_gaps(before=self.spells_since())
        steps: list[Callable[[], Awaitable[object]]] = [
            partial(store.forget, before=unseen_since, limit=BATCH, now=now),
            partial(store.prune_sessions, before=now, limit=BATCH),
            partial(store.prune_spells, before=self.spells_since(), limit=BATCH),
            partial(store.prune_events, before=log_since, keep=keep.events_keep, limit=BATCH),
        ]
        if keep.audit_keep_days:
            acts_since = _days_before(now, keep.audit_keep_days)
            steps.append(partial(store.prune_audit, before=acts_since, limit=BATCH))
        return any([await _goes_on(remove) for remove in steps])

    def spells_since(self) -> int:
        """The time from which on spells and gaps are there to be read, all of them."""
        return _days_before(self._clock.now(), self._settings.spells_keep_days)


async def _goes_on(remove: Callable[[], Awaitable[object]]) -> bool:
    """Batch by batch until one removes nothing; True if a whole turn did not get that far."""
    for _ in range(MAX_BATCHES):
        if not await remove():
            return False
        await asyncio.sleep(PAUSE_SECONDS)
    return True


def _days_before(now: int, days: int) -> int:
    # Never below 0: a store has no room for a time that is a million years ago.
    return max(0, now - days * DAY)
