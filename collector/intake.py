"""Group commit: beats join the waiting batch, one writer commits what is there.

A beat's caller waits until its beat is committed, and hears its own outcome. There is no artificial
delay: while one batch commits, the next one gathers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

from collector.clock import Clock
from collector.errors import (
    CollectorError,
    Internal,
    Overloaded,
    StoreError,
    StoreUnavailable,
    Unstorable,
)
from collector.metrics import Metrics
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat

_log = logging.getLogger(__name__)

# Part of the queue that one tenant may hold: a flood of one leaves room for the others.
SHARE = 4
# A batch of fewer is worth one more look at who has something to read.
FEW = 8

# Called once: with None when the beat is committed, or with what kept it from that.
Answer = Callable[[CollectorError | None], None]
Waiting = tuple[Beat, Answer]
# Newest beat last; older ones of the same worker are superseded, and answered with it.
Batch = dict[tuple[str, str], list[Waiting]]


class Intake:
    """A bounded queue in front of one writer."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        limit: int,
        gone: Callable[[], int] = lambda: NO_GAP,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._limit = limit
        self._gone = gone
        self._batch: Batch = {}
        self._held: Counter[str] = Counter()
        self._waiting = 0
        self._arrived = asyncio.Event()
        self._closing = False
        self._writer: asyncio.Task[None] | None = None
        # When a commit failed, until one succeeds.
        self.failed_at: int | None = None
        metrics.watch(
            "collector_queue_beats", "Beats waiting for their commit.", lambda: self._waiting
        )

    def open(self) -> None:
        self._writer = asyncio.create_task(self._write(), name="intake-writer")

    async def close(self) -> None:
        """Commit what waits, then stop."""
        self._closing = True
        self._arrived.set()
        if self._writer is not None:
            await self._writer

    async def submit(self, beat: Beat) -> None:
        """Return once the beat is committed; raise what kept it from that."""
        committed = asyncio.get_running_loop().create_future()

        def answer(error: CollectorError | None) -> None:
            # A waiter that went away held its place all the same: its beat was in the batch.
            if committed.done():
                return
            if error is None:
                committed.set_result(None)
            else:
                committed.set_exception(error)

        self.enter(beat, answer)
        await committed

    def enter(self, beat: Beat, answer: Answer) -> None:
        """Let the beat in, or raise; it is answered once its commit has ended."""
        self._admit(beat.tenant_id)
        _join(self._batch, beat, answer)
        self._arrived.set()

    def _admit(self, tenant_id: str) -> None:
        if self._closing:
            raise Overloaded("The collector is stopping.")
        if self._waiting >= self._limit:
            raise Overloaded("Too many heartbeats wait for their commit.")
        if self._held[tenant_id] >= self._limit // SHARE:
            raise Overloaded("Too many heartbeats of this tenant wait for their commit.")
        self._waiting += 1
        self._held[tenant_id] += 1

    def _release(self, tenant_id: str) -> None:
        self._waiting -= 1
        self._held[tenant_id] -= 1
        if not self._held[tenant_id]:
            del self._held[tenant_id]

    async def _write(self) -> None:
        while not (self._closing and not self._batch):
            await self._arrived.wait()
            if len(self._batch) < FEW:
                # Who was answered together asks again together: the others are a moment behind.
                await asyncio.sleep(0)
            self._arrived.clear()
            batch, self._batch = self._batch, {}
            if batch:
                await self._commit_answering(batch)

    async def _commit_answering(self, batch: Batch) -> None:
        """Commit and answer; whatever goes wrong is this batch's alone, and the writer lives on."""
        try:
            await self._commit(batch)
        except Exception as error:
            _log.exception("a batch of %d failed", len(batch))
            self._answer(
                batch, error if isinstance(error, StoreError) else Internal("The commit failed.")
            )

    async def _commit(self, batch: Batch) -> None:
        """One statement for the batch; a beat that can't be stored is found by halving."""
        try:
            await self._store_newest(batch)
        except Unstorable as error:
            if len(batch) > 1:
                for half in _halves(batch):
                    await self._commit(half)
            else:
                await self._drop_newest(batch, error)
        except StoreUnavailable as error:
            _log.warning("commit failed: %s", error)
            self.failed_at = self._clock.now()
            self._answer(batch, error)
        else:
            self.failed_at = None
            self._answer(batch, None)

    async def _store_newest(self, batch: Batch) -> None:
        # In key order: every writer of this store takes its row locks in the same order.
        beats = [batch[key][-1][0] for key in sorted(batch)]
        self._metrics.batch_size.observe(len(beats))
        started = time.perf_counter()
        try:
            await self._store.commit(beats, now=self._clock.now(), gone=self._gone())
        except StoreUnavailable:
            # Repeating is safe even if the first attempt did commit: equal stamps change nothing.
            self._metrics.commit_retries.inc()
            await self._store.commit(beats, now=self._clock.now(), gone=self._gone())
        finally:
            self._metrics.commit_seconds.observe(time.perf_counter() - started)

    def _answer(self, batch: Batch, error: CollectorError | None) -> None:
        """Once each: of a batch that failed in parts, some have heard already."""
        answered = 0
        for waiting in batch.values():
            while waiting:
                beat, answer = waiting.pop()
                self._release(beat.tenant_id)
                answered += 1
                try:
                    answer(error)
                except Exception:
                    _log.exception("a beat could not be answered")
        if error is None:
            self._metrics.accepted.inc(answered)

    async def _drop_newest(self, batch: Batch, error: Unstorable) -> None:
        """The one at fault hears it; an older beat of the same worker gets its own chance."""
        ((key, waiting),) = batch.items()
        self._answer({key: [waiting.pop()]}, error)
        if waiting:
            await self._commit({key: waiting})


def _join(batch: Batch, beat: Beat, answer: Answer) -> None:
    """Keep each worker's beats in stamp order; of equal stamps the later arrival counts."""
    waiting = batch.setdefault((beat.tenant_id, beat.agent_id), [])
    place = len(waiting)
    while place and waiting[place - 1][0].last_seen > beat.last_seen:
        place -= 1
    waiting.insert(place, (beat, answer))


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    items = sorted(batch.items())
    middle = len(items) // 2
    return dict(items[:middle]), dict(items[middle:])
