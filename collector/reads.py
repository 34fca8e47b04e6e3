"""A share of the collector for reads of whole rosters, so that one tenant's cost no other's beats.

A document holds a place from the reading of its workers to the last byte that is sent. Places are
bounded for each tenant and in all, and so are the bytes of documents under way; whoever finds none
waits, tenants in turn, and is refused after a while. Equal questions of a tenant that wait together
are answered by one document, which is never older than the question. A tenant with many workers has
its documents made by another process.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from collector import documents
from collector.clock import Clock
from collector.documents import Document, Question
from collector.errors import Overloaded, TooManyReads
from collector.reader import Reader
from collector.store.protocol import Store
from collector.turns import Turns
from collector.values import RosterQuery

# Up to so many workers are read and encoded in this process: less than half a millisecond.
SMALL = 100
# So many times what one tenant may have, all of them together may.
IN_ALL = 8
BYTES_IN_ALL = 4
# Requests of one tenant that may wait for a place, and for how long.
MAX_WAITING = 64
WAIT_SECONDS = 10
# A stream that waits looks so often whether its key has ended.
LOOK_SECONDS = 1
# Tenants of which it is known whether they are small; of others the store is asked.
MOST_KNOWN = 10_000
MEGABYTE = 1024 * 1024


@dataclass(slots=True, eq=False)
class Share:
    """The places of one tenant, for requests or for streams: neither keeps the other waiting."""

    under_way: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Desk:
    """The documents of one tenant: one is read at a time, and their bytes are counted."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    bytes: int = 0


@dataclass(slots=True, eq=False)
class Reading:
    """One document for all who asked before it was begun."""

    made: asyncio.Future[Document]
    holders: int = 0
    # Of the document, once it is made and as long as somebody holds it.
    bytes: int = 0


class Reads:
    """All documents of this process."""

    def __init__(
        self, store: Store, clock: Clock, reader: Reader, *, at_once: int, megabytes: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._reader = reader
        self._at_once = at_once
        self._most_bytes = megabytes * MEGABYTE
        self.turns = Turns()
        self._is_stopping = False
        self._under_way = 0
        self._bytes = 0
        self._shares: dict[tuple[str, bool], Share] = {}
        # Shares that somebody waits for, the next one first.
        self._queue: deque[Share] = deque()
        self._desks: dict[str, Desk] = {}
        # Readings that have not begun.
        self._joinable: dict[Question, Reading] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        # Tenant → whether it has more than a few workers.
        self._is_large: OrderedDict[str, bool] = OrderedDict()

    @property
    def under_way(self) -> int:
        return self._under_way

    @property
    def bytes_under_way(self) -> int:
        return self._bytes

    def stop(self) -> None:
        """Refuse everybody who waits for a place, and whoever comes now."""
        self._is_stopping = True
        for share in self._shares.values():
            for place in share.waiting:
                if not place.done():
                    place.set_exception(_stopping())
            share.waiting.clear()

    async def close(self) -> None:
        await self._reader.close()

    @asynccontextmanager
    async def document(
        self, question: Question, *, stream: Callable[[], bool] | None = None
    ) -> AsyncIterator[Document]:
        """The answer, and a place that is kept until its last piece is sent.

        A request waits for a while, unless too many of its tenant's wait already, and is refused
        then. A stream waits for as long as `stream` says that it is still wanted.
        """
        async with self._place(question.tenant_id, stream):
            reading = self._join(question)
            try:
                # A caller that goes away must not take the document from the others.
                yield await asyncio.shield(reading.made)
            finally:
                self._leave(question.tenant_id, reading)

    # Places.

    @asynccontextmanager
    async def _place(
        self, tenant_id: str, stream: Callable[[], bool] | None
    ) -> AsyncIterator[None]:
        if self._is_stopping:
            raise _stopping()
        key = (tenant_id, stream is not None)
        share = self._shares.setdefault(key, Share())
        try:
            if share.waiting or not self._has_place(share):
                await self._wait_for_place(share, stream)
            else:
                self._take_place(share)
            try:
                yield
            finally:
                share.under_way -= 1
                self._under_way -= 1
                self._hand_out()
        finally:
            if not (share.under_way or share.waiting):
                self._shares.pop(key, None)

    def _has_place(self, share: Share) -> bool:
        return share.under_way < self._at_once and self._under_way < self._at_once * IN_ALL

    def _take_place(self, share: Share) -> None:
        share.under_way += 1
        self._under_way += 1

    async def _wait_for_place(self, share: Share, stream: Callable[[], bool] | None) -> None:
        if stream is None and len(share.waiting) >= MAX_WAITING:
            raise TooManyReads("Too many reads of this tenant wait for their turn.")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append(place)
        if len(share.waiting) == 1:
            self._queue.append(share)
        try:
            await (_in_time(place) if stream is None else _while_wanted(place, stream))
        except BaseException:
            self._give_up(share, place)
            raise

    def _give_up(self, share: Share, place: asyncio.Future[None]) -> None:
        if place.done() and not place.cancelled() and place.exception() is None:
            # The place was handed out in the very moment that nobody wanted it any more.
            share.under_way -= 1
            self._under_way -= 1
        elif place in share.waiting:
            share.waiting.remove(place)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give free places to those who wait: one to each tenant in turn."""
        passed = 0
        while self._queue and passed < len(self._queue):
            share = self._queue.popleft()
            if not share.waiting:
                continue
            if not self._has_place(share):
                self._queue.append(share)
                passed += 1
                continue
            passed = 0
            place = share.waiting.popleft()
            if not place.done():
                self._take_place(share)
                place.set_result(None)
            if share.waiting:
                self._queue.append(share)

    # Documents.

    def _join(self, question: Question) -> Reading:
        reading = self._joinable.get(question)
        if reading is None:
            reading = Reading(asyncio.get_running_loop().create_future())
            self._joinable[question] = reading
            desk = self._desks.setdefault(question.tenant_id, Desk())
            desk.users += 1
            task = asyncio.create_task(self._make(question, desk, reading))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        reading.holders += 1
        return reading

    def _leave(self, tenant_id: str, reading: Reading) -> None:
        reading.holders -= 1
        if reading.made.done() and not reading.holders:
            self._free(tenant_id, reading)

    async def _make(self, question: Question, desk: Desk, reading: Reading) -> None:
        """Make the reading's document, whoever still waits for it, and count its bytes."""
        try:
            document = await self._answered(question, desk, reading)
        except asyncio.CancelledError:
            reading.made.cancel()
            raise
        except Exception as error:
            reading.made.set_exception(error)
            # Perhaps nobody waits for it any more.
            reading.made.exception()
        else:
            reading.bytes = document.size
            desk.bytes += reading.bytes
            self._bytes += reading.bytes
            reading.made.set_result(document)
        finally:
            self._begin(question, reading)
            if not reading.holders:
                self._free(question.tenant_id, reading)

    async def _answered(self, question: Question, desk: Desk, reading: Reading) -> Document:
        async with desk.turn:
            is_small = await self._is_small(question)
            if not is_small:
                await self._room(desk)
            self._begin(question, reading)
            return await (self._made_here(question) if is_small else self._made_there(question))

    def _begin(self, question: Question, reading: Reading) -> None:
        """From here on the document may be older than a question that comes."""
        if self._joinable.get(question) is reading:
            del self._joinable[question]

    async def _room(self, desk: Desk) -> None:
        """Wait until the documents that are being sent leave room for another."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not self._has_room(desk):
                    await self._freed.wait()
        except TimeoutError:
            raise TooManyReads("Too much of what was read is not sent yet.") from None

    def _has_room(self, desk: Desk) -> bool:
        # The first document of a tenant has room where others' leave none for a second.
        in_all = self._most_bytes * (BYTES_IN_ALL if desk.bytes else 2 * BYTES_IN_ALL)
        return desk.bytes < self._most_bytes and self._bytes < in_all

    def _free(self, tenant_id: str, reading: Reading) -> None:
        desk = self._desks[tenant_id]
        desk.bytes -= reading.bytes
        self._bytes -= reading.bytes
        desk.users -= 1
        if not desk.users:
            del self._desks[tenant_id]
        self._freed.set()
        self._freed = asyncio.Event()

    async def _made_here(self, question: Question) -> Document:
        now = self._clock.now()
        found = await documents.find(self._store, question, now=now)
        await self.turns.take()
        document = documents.make(question, found, now=now)
        if document.facts.workers > SMALL:
            self._learn(question.tenant_id, is_large=True)
        return document

    async def _made_there(self, question: Question) -> Document:
        document = await self._reader.ask(question, now=self._clock.now())
        if question.query == RosterQuery() and document.facts.workers <= SMALL:
            self._learn(question.tenant_id, is_large=False)
        return document

    async def _is_small(self, question: Question) -> bool:
        limit = question.query.limit
        if limit is not None and limit <= SMALL:
            return True
        is_large = self._is_large.get(question.tenant_id)
        if is_large is None:
            is_large = await self._store.has_more_workers(question.tenant_id, than=SMALL)
            self._learn(question.tenant_id, is_large=is_large)
        return not is_large

    def _learn(self, tenant_id: str, *, is_large: bool) -> None:
        self._is_large[tenant_id] = is_large
        self._is_large.move_to_end(tenant_id)
        if len(self._is_large) > MOST_KNOWN:
            self._is_large.popitem(last=False)


async def _in_time(place: asyncio.Future[None]) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await place
    except TimeoutError:
        raise TooManyReads("Other reads of this tenant took too long.") from None


async def _while_wanted(place: asyncio.Future[None], is_wanted: Callable[[], bool]) -> None:
    while not place.done():
        await asyncio.wait([place], timeout=LOOK_SECONDS)
        if not is_wanted():
            raise Overloaded("The stream has ended.")
    place.result()


def _stopping() -> Overloaded:
    return Overloaded("The collector is stopping.")
