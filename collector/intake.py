"""Group commit: beats join the waiting batch, one writer commits what is there.

A beat's caller waits until its beat is committed, and hears its own outcome. There is no artificial
delay, but for a few turns of the event loop: while one batch commits, the next one gathers and the
one before is answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import islice

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
# A batch of fewer is worth a few more looks, so many at most, at who has something to read.
FEW = 8
LOOKS = 8
# Both attempts at a commit, together. A beat that comes while another batch fails waits for that
# one and for its own: it is refused within 12 s in all.
COMMIT_SECONDS = 5.5

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
        self._share = limit // SHARE
        self._gone = gone
        self._batch: Batch = {}
        # By tenant; only of those who wait.
        self._held: dict[str, int] = {}
        self._waiting = 0
        # How many there were when some were last answered: those may be about to come back.
        self._waited = 0
        self._arrived = asyncio.Event()
        self._closing = False
        self._writer: asyncio.Task[None] | None = None
        # When the commit under way began.
        self.committing_since: int | None = None
        # When a commit failed, until one succeeds; and when one did.
        self.failed_at: int | None = None
        self.committed_at = 0
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
        answer, committed = awaited()
        self.enter(beat, answer)
        await committed

    def enter(self, beat: Beat, answer: Answer) -> None:
        """Let the beat in, or raise; it is answered once its commit has ended."""
        self._admit(beat.tenant_id)
        _join(self._batch, beat, answer)
        self._arrived.set()

    def check(self, tenant_id: str) -> int:
        """How many beats of this tenant wait; raise if there is no room for another."""
        if self._closing:
            raise Overloaded.stopping()
        if self._waiting >= self._limit:
            raise Overloaded("Too many heartbeats wait for their commit.")
        held = self._held.get(tenant_id, 0)
        if held >= self._share:
            raise Overloaded("Too many heartbeats of this tenant wait for their commit.")
        return held

    def _admit(self, tenant_id: str) -> None:
        self._held[tenant_id] = self.check(tenant_id) + 1
        self._waiting += 1

    def _release(self, tenant_id: str) -> None:
        self._waiting -= 1
        held = self._held[tenant_id] - 1
        if held:
            self._held[tenant_id] = held
        else:
            del self._held[tenant_id]

    async def _write(self) -> None:
        while not (self._closing and not self._batch):
            await self._arrived.wait()
            await self._look_for_more()
            if self._batch:
                await self._commit_all()

    async def _look_for_more(self) -> None:
        """Who was answered together asks again together: some are a moment behind the first."""
        for _ in range(LOOKS):
            if len(self._batch) >= min(FEW, self._waited):
                return
            await asyncio.sleep(0)

    async def _commit_all(self) -> None:
        """Commit what is there, and what has come meanwhile.

        A batch is answered while the next one is under way, so that the store never waits for us to
        write answers. A few are not worth a commit of their own: those who are about to be answered
        will soon ask again. And no batch has more than half of those who wait: who asks again and
        again would soon all be in one batch, and the store idle while it is answered. After a
        failure all of them are: nobody waits for more than one batch before their own.
        """
        batch = self._take(len(self._batch))
        error = await self._committed(batch)
        while error is None and len(self._batch) >= FEW:
            # In the next turn of the loop: in this one the next batch is sent.
            asyncio.get_running_loop().call_soon(self._answer, batch, error)
            batch = self._take((self._waiting + 1) // 2)
            error = await self._committed(batch)
        self._waited = self._waiting
        self._answer(batch, error)

    def _take(self, most: int) -> Batch:
        """The first of those who wait."""
        if len(self._batch) <= most:
            self._arrived.clear()
            batch, self._batch = self._batch, {}
            return batch
        return {key: self._batch.pop(key) for key in list(islice(self._batch, most))}

    async def _committed(self, batch: Batch) -> CollectorError | None:
        """Whatever goes wrong is this batch's alone, and the writer lives on."""
        try:
            return await self._commit(batch)
        except Exception as error:
            _log.exception("a batch of %d failed", len(batch))
            return error if isinstance(error, StoreError) else Internal("The commit failed.")

    async def _commit(self, batch: Batch) -> CollectorError | None:
        """One statement for the batch; what kept those from it who are not answered yet.

        A beat that can't be stored is found by halving, and each part is answered as it ends.
        """
        try:
            await self._store_newest(batch)
        except Unstorable as error:
            if len(batch) == 1:
                return await self._drop_newest(batch, error)
            for half in _halves(batch):
                self._answer(half, await self._commit(half))
        except StoreUnavailable as error:
            _log.warning("commit failed: %s", error)
            self.failed_at = self._clock.now()
            return error
        else:
            self.failed_at = None
            self.committed_at = self._clock.now()
        return None

    async def _store_newest(self, batch: Batch) -> None:
        # In key order: every writer of this store takes its row locks in the same order.
        beats = [batch[key][-1][0] for key in sorted(batch)]
        self._metrics.batch_size.observe(len(beats))
        started, self.committing_since = time.perf_counter(), self._clock.now()
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._try_twice(beats)
        except TimeoutError:
            raise StoreUnavailable(f"no commit within {COMMIT_SECONDS} s") from None
        finally:
            self.committing_since = None
            self._metrics.commit_seconds.observe(time.perf_counter() - started)

    async def _try_twice(self, beats: list[Beat]) -> None:
        try:
            await self._store.commit(beats, now=self._clock.now(), gone=self._gone())
        except StoreUnavailable as error:
            _log.warning("commit is tried again: %s", error)
            # Repeating is safe even if the first attempt did commit: equal stamps change nothing.
            self._metrics.commit_retries.inc()
            await self._store.commit(beats, now=self._clock.now(), gone=self._gone())

    def _answer(self, batch: Batch, error: CollectorError | None) -> None:
        """Once each: the parts of a batch that was halved share their lists with the whole."""
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

    async def _drop_newest(self, batch: Batch, error: Unstorable) -> CollectorError | None:
        """The one at fault hears it; an older beat of the same worker gets its own chance."""
        ((key, waiting),) = batch.items()
        self._answer({key: [waiting.pop()]}, error)
        return await self._commit(batch) if waiting else None


def awaited() -> tuple[Answer, asyncio.Future[None]]:
    """An answer for one who waits, and what it waits for."""
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(error: CollectorError | None) -> None:
        # A waiter that went away held its place all the same: its beat was in the batch.
        if committed.done():
            return
        if error is None:
            committed.set_result(None)
        else:
            committed.set_exception(error)

    return answer, committed


def _join(batch: Batch, beat: Beat, answer: Answer) -> None:
    """Keep each worker's beats in stamp order; of equal stamps the later arrival counts."""
    key = (beat.tenant_id, beat.agent_id)
    waiting = batch.get(key)
    if waiting is None:
        batch[key] = [(beat, answer)]
        return
    place = len(waiting)
    while place and waiting[place - 1][0].last_seen > beat.last_seen:
        place -= 1
    waiting.insert(place, (beat, answer))


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    items = sorted(batch.items())
    middle = len(items) // 2
    return dict(items[:middle]), dict(items[middle:])
