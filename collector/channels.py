"""One tenant's log in this process, and those who follow it.

A follower is nothing but a number, the newest line it has had. The lines themselves stand once in
its tenant's channel, a bounded ring of the newest ones, each encoded once for everybody. So nobody
waits for a slow follower: it finds the ring gone past it and is given a fresh snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from collector.batches import Batch, Filter, Line, Lines, Snapshot, Vitals
from collector.clock import Clock, every
from collector.documents import Kind, Question
from collector.errors import Overloaded, StoreError, TooManyReads
from collector.reads import Reads
from collector.store.protocol import Store
from collector.values import SECOND, Event, Position, Principal

_log = logging.getLogger(__name__)

RING = 2048
PAGE = 500
# Pages of older lines that a channel keeps for those who come back together.
PAGES = 4
# Followers stand in so many groups, and about so many are woken in one turn of the event loop.
GROUPS = 32
WOKEN_AT_ONCE = 64
VITALS_EVERY = 5 * SECOND
VITALS_OVERLAP = 2 * SECOND
# A stream that meets one of these ends, and its client comes back.
ENDS_STREAMS = (Overloaded, TooManyReads, StoreError)


class Channel:
    """One tenant's newest lines in this process, while somebody follows."""

    def __init__(
        self, store: Store, clock: Clock, reads: Reads, tenant_id: str, position: Position
    ) -> None:
        self.store = store
        self.clock = clock
        self.reads = reads
        self.tenant_id = tenant_id
        self.epoch = position.epoch
        self.head = position.head
        self.followers: set[Follower] = set()
        # The newest vitals for each filter that a follower has.
        self.vitals: dict[Filter, Vitals] = {}
        # Called with new lines, in order, before any follower is.
        self.listeners: list[Callable[[Sequence[Line]], None]] = []
        self._wakings = Wakings()
        self._vitals_at = clock.now()
        self._ring: deque[Line] = deque(maxlen=RING)
        # By the number it begins after. One is kept: all but those who lag stand at one place.
        self._batch: dict[int, Lines] = {}
        # Pages of the log from before the ring, by their number.
        self._pages: OrderedDict[int, asyncio.Task[list[Line]]] = OrderedDict()
        self._task = asyncio.create_task(
            every(VITALS_EVERY / SECOND, self.take_vitals, "vitals were not read")
        )

    def join(self, follower: Follower) -> None:
        self.followers.add(follower)
        self._wakings.join(follower)

    def part(self, follower: Follower) -> None:
        if follower in self.followers:
            self.followers.discard(follower)
            self._wakings.leave(follower)

    def close(self) -> None:
        self._task.cancel()
        for page in self._pages.values():
            page.cancel()

    def has_lines_after(self, n: int) -> bool:
        """Whether there are any, and the ring has gone past none of them."""
        return n < self.head and bool(self._ring) and self._ring[0].n <= n + 1

    def after(self, n: int) -> Lines:
        """The lines after n, which are here; one batch for all who stand at the same place."""
        if n not in self._batch:
            first = self._ring[0].n
            lines = [self._ring[place] for place in range(n + 1 - first, len(self._ring))]
            self._batch = {n: Lines(lines, lines[-1].cursor, {})}
        return self._batch[n]

    async def lines_after(self, n: int) -> list[Line]:
        """The next lines after n from the store, as many as a page has."""
        events = await self.store.events(self.tenant_id, after=n, limit=PAGE)
        return [Line(event, self.epoch) for event in events]

    async def page_after(self, n: int) -> list[Line]:
        """The next lines after n from the store, up to the end of a page.

        The log is cut in pages at fixed places, so that all who come back with cursors of one page
        share one reading of it. A page that was not full may have grown, and is read again.
        """
        number = n // PAGE
        page = self._pages.get(number)
        if page is None or _is_outdated(page):
            page = self._pages[number] = asyncio.create_task(self._read_page(number))
            if len(self._pages) > PAGES:
                self._pages.popitem(last=False)
        # A follower that goes away must not take the page from the others.
        lines = _after(n, await asyncio.shield(page))
        # One that was begun before we came may lack what was logged meanwhile.
        return lines or _after(n, await self._read_page(number))

    async def _read_page(self, number: int) -> list[Line]:
        lines = await self.lines_after(number * PAGE)
        return [line for line in lines if line.n <= (number + 1) * PAGE]

    def take(self, events: list[Event]) -> None:
        """What was read of the log; some of it may be here already."""
        news = [event for event in events if event.n > self.head]
        if not news:
            return
        if news[0].n != self.head + 1:
            self._ring.clear()  # the log was cut past us: no follower has a way through
        lines = [Line(event, self.epoch) for event in news]
        self._ring.extend(lines)
        self._batch = {}
        self.head = news[-1].n
        for listen in self.listeners:
            listen(lines)
        self.wake_followers()

    async def take_vitals(self) -> None:
        """One document for all followers who want the same: who beat since the last time.

        A tenant that reads too much else goes without.
        """
        wanted = {each.wanted for each in self.followers if each.with_vitals}
        if not wanted:
            return
        # A little over: a beat that was stamped before the last look may be committed after it.
        since, self._vitals_at = self._vitals_at - VITALS_OVERLAP, self.clock.now()
        try:
            self.vitals = {each: await self._vitals(each, since) for each in wanted}
        except (TooManyReads, Overloaded):
            self._vitals_at = since + VITALS_OVERLAP
            return
        self.wake_followers()

    async def _vitals(self, wanted: Filter, since: int) -> Vitals:
        question = Question("vitals", self.tenant_id, wanted.query(seen_since=since))
        async with self.reads.document(question) as document:
            return Vitals(document)

    def wake_followers(self) -> None:
        self._wakings.wake()


def _after(n: int, lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.n > n]


def _is_outdated(page: asyncio.Task[list[Line]]) -> bool:
    if not page.done():
        return False
    return page.cancelled() or page.exception() is not None or len(page.result()) < PAGE


class Wakings:
    """Wakes followers, some dozens in one turn of the event loop: who beats has turns between."""

    def __init__(self) -> None:
        self._groups: list[set[Follower]] = [set() for _ in range(GROUPS)]
        self._next = 0
        self._to_wake = 0

    def join(self, follower: Follower) -> None:
        follower.group = min(range(GROUPS), key=lambda group: len(self._groups[group]))
        self._groups[follower.group].add(follower)

    def leave(self, follower: Follower) -> None:
        self._groups[follower.group].discard(follower)

    def wake(self) -> None:
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_group)
        # A round that is under way goes on until each group was woken after this call.
        self._to_wake = GROUPS

    def _wake_group(self) -> None:
        woken = 0
        while self._to_wake and woken < WOKEN_AT_ONCE:
            group = self._groups[self._next]
            for follower in group:
                follower.wake()
            woken += len(group)
            self._next = (self._next + 1) % GROUPS
            self._to_wake -= 1
        if self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_group)


class Follower:
    """One subscriber: how far it has come, and whether it may go on."""

    def __init__(
        self,
        principal: Principal,
        wanted: Filter,
        snapshots: Kind,
        *,
        with_vitals: bool,
        until: float | None,
    ) -> None:
        self._until = until
        self.principal = principal
        self.wanted = wanted
        self.with_vitals = with_vitals
        self.has_ended = False
        # The group that it is woken with.
        self.group = 0
        self._snapshots = snapshots
        # Done when the follower is woken; None unless it waits for news.
        self._waiting: asyncio.Future[bool] | None = None

    def wake(self) -> bool:
        """Let the follower look for news again; return whether it was waiting for any."""
        if self._waiting is None or self._waiting.done():
            return False
        self._waiting.set_result(True)
        return True

    def end(self) -> bool:
        """End the batches; return whether nothing but news was waited for, so that they do now."""
        self.has_ended = True
        return self.wake()

    async def batches(
        self, channel: Channel, after: int | None, head: int
    ) -> AsyncGenerator[Batch]:
        n, seen = after, channel.vitals.get(self.wanted)
        if n is not None:
            async for page in self._log_after(n, channel, head):
                n = page.lines[-1].n
                yield self.wanted.of(page)
        while not self.has_ended:
            vitals = channel.vitals.get(self.wanted) if self.with_vitals else None
            if n is not None and channel.has_lines_after(n):
                batch = channel.after(n)
                n = batch.lines[-1].n
                yield self.wanted.of(batch)
            elif n is None or n < channel.head:
                try:
                    async with self._snapshot(channel) as snapshot:
                        n = snapshot.document.position.head
                        yield snapshot
                except ENDS_STREAMS as error:
                    if self._until is not None:
                        raise
                    _log.info("a stream ends before its snapshot: %s", error)
                    return
                # While the follower waits for news, nothing keeps what it was sent.
                del snapshot
            elif vitals is not None and vitals is not seen:
                seen = vitals
                if vitals.document.pieces:
                    yield vitals
            elif not await self._woken_in_time():
                return

    async def _woken_in_time(self) -> bool:
        """Wait for news; only waiting has an end, what is there to be read is always read."""
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            if self._until is None:
                return await self._waiting
            async with asyncio.timeout_at(self._until):
                return await self._waiting
        except TimeoutError:
            return False
        finally:
            self._waiting = None

    async def _log_after(self, n: int, channel: Channel, head: int) -> AsyncGenerator[Lines]:
        """The way from an older cursor up to the ring, page by page from the store.

        The channel may not have read on to `head` yet, where the log stood when we came.
        """
        while not (self.has_ended or channel.has_lines_after(n) or n >= max(head, channel.head)):
            # A poll asks once, so it gets as many lines as one answer may have.
            lines = await (channel.page_after if self._until is None else channel.lines_after)(n)
            if not lines or lines[0].n != n + 1:
                return
            n = lines[-1].n
            yield Lines(lines, lines[-1].cursor, {})

    @asynccontextmanager
    async def _snapshot(self, channel: Channel) -> AsyncIterator[Snapshot]:
        """A snapshot, in its turn; its place is kept until the caller has sent it."""
        question = Question(self._snapshots, channel.tenant_id, self.wanted.query())
        # A poll is refused like other requests; a stream waits.
        is_wanted = self.is_wanted if self._until is None else None
        async with channel.reads.document(question, is_wanted=is_wanted) as document:
            yield Snapshot(document)

    def is_wanted(self) -> bool:
        return not self.has_ended
