"""Forgets what is old: workers that are long gone, and the old ends of logs, spells and gaps.

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
PAUSE_SECONDS = 0.05
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
            try:
                await self.tick()
            except StoreError as error:
                _log.warning("old rows stay for now: %s", error)
            await asyncio.sleep(EVERY_SECONDS)

    async def tick(self) -> None:
        """Remove all that is too old now; forgetting comes first, because it writes to the logs."""
        now, keep = self._clock.now(), self._settings
        unseen_since = _days_before(now, keep.forget_after_days)
        log_since = _days_before(now, keep.events_keep_days)
        store = self._store
        await _until_none(partial(store.forget, before=unseen_since, limit=BATCH, now=now))
        await _until_none(
            partial(store.prune_events, before=log_since, keep=keep.events_keep, limit=BATCH)
        )
        await _until_none(partial(store.prune_spells, before=self.spells_since(), limit=BATCH))
        await store.prune_gaps(before=self.spells_since())

    def spells_since(self) -> int:
        """The time from which on spells and gaps are there to be read, all of them."""
        return _days_before(self._clock.now(), self._settings.spells_keep_days)


async def _until_none(remove: Callable[[], Awaitable[object]]) -> None:
    """Batch by batch until one removes nothing."""
    while await remove():  # noqa: ASYNC110  the condition is the work
        await asyncio.sleep(PAUSE_SECONDS)


def _days_before(now: int, days: int) -> int:
    # Never below 0: a store has no room for a time that is a million years ago.
    return max(0, now - days * DAY)
