"""A share of the collector for reads of whole rosters, so that one tenant's cost no other's beats.

A document holds a place from the reading of its workers to the last byte that is sent, and its
bytes are counted for as long. Equal questions of a tenant that wait together are answered by one
document, which is never older than the question. A tenant with many workers has its documents made
by another process.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from collector import documents
from collector.clock import Clock
from collector.documents import Document, Question
from collector.errors import TooManyReads
from collector.places import IsWanted, Places, while_wanted
from collector.reader import Reader
from collector.reader_process import AT_ONCE
from collector.store.protocol import Store
from collector.turns import Turns
from collector.values import RosterQuery

# A tenant with at most this many workers is read in this process: that takes under 0.5 ms.
SMALL_WORKERS = 100
# All tenants together may have this many times the bytes of one. The first document of a tenant
# has twice that room, so that others' clients who take nothing can't keep it out.
BYTES_IN_ALL = 4
# A request waits this long for its place and for room.
WAIT_SECONDS = 10
# A collector that stops gives the process that reads this long.
STOP_SECONDS = 1
# The process remembers of this many tenants whether they are small; it asks the store of others.
MOST_KNOWN = 10_000
MEGABYTE = 1024 * 1024


@dataclass(slots=True, eq=False)
class Desk:
    """The documents of one tenant: one is read at a time, and their bytes are counted."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    bytes: int = 0


@dataclass(slots=True, eq=False)
class Reading:
    """One document for all who asked before it was begun."""

    question: Question
    desk: Desk
    making: asyncio.Task[Document] = field(init=False)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    holders: int = 0
    # The size of the document, once it is made.
    bytes: int = 0
    has_ended: bool = False


class Reads:
    """All documents of this process."""

    def __init__(
        self, store: Store, clock: Clock, reader: Reader, *, at_once: int, megabytes: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._reader = reader
        self._most_bytes = megabytes * MEGABYTE
        self.turns = Turns()
        # Tenants with few workers have places of their own: large reads can't keep them out.
        self._places = {is_large: Places(at_once) for is_large in (False, True)}
        self.bytes_under_way = 0
        self._desks: dict[str, Desk] = {}
        self._joinable: dict[Question, Reading] = {}
        self._making = asyncio.Semaphore(AT_ONCE)
        self._freed = asyncio.Event()
        # Tenant → whether it has more than a few workers.
        self._is_large: OrderedDict[str, bool] = OrderedDict()

    @property
    def under_way(self) -> int:
        return sum(places.under_way for places in self._places.values())

    def stop(self) -> None:
        """Refuse everybody who waits for a place, and whoever comes now.

        Whoever waits for a process that hangs is refused soon after.
        """
        for places in self._places.values():
            places.stop()
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._reader.abandon)

    async def close(self) -> None:
        await self._reader.close()

    @asynccontextmanager
    async def document(
        self, question: Question, *, is_wanted: IsWanted | None = None
    ) -> AsyncIterator[Document]:
        """The answer, and a place that is kept until its last piece is sent.

        A request waits for a while, unless too many of its tenant's wait already, and is refused
        then. A stream says by `is_wanted` for how long it waits.
        """
        until = is_wanted or asyncio.get_running_loop().time() + WAIT_SECONDS
        places = self._places[self._is_large.get(question.tenant_id, False)]
        async with places.hold(question.tenant_id, until):
            reading = self._join(question)
            try:
                yield await _made(reading, until)
            finally:
                self._leave(reading)

    def _join(self, question: Question) -> Reading:
        reading = self._joinable.get(question)
        if reading is None:
            desk = self._desks.setdefault(question.tenant_id, Desk())
            desk.users += 1
            reading = self._joinable[question] = Reading(question, desk)
            reading.making = asyncio.create_task(self._make(reading))
            reading.making.add_done_callback(lambda _: self._end(reading))
        reading.holders += 1
        return reading

    def _leave(self, reading: Reading) -> None:
        reading.holders -= 1
        if reading.holders:
            return
        if reading.has_ended:
            self._free(reading)
        elif not reading.begun.is_set():
            self._close(reading)
            reading.making.cancel()

    def _close(self, reading: Reading) -> None:
        """From here on nobody joins: the document may be older than a question that comes."""
        if self._joinable.get(reading.question) is reading:
            del self._joinable[reading.question]

    def _end(self, reading: Reading) -> None:
        """The bytes of a document are under way until all who hold it have sent them."""
        self._close(reading)
        reading.begun.set()
        reading.has_ended = True
        # The error, if there is one, is looked at here: perhaps nobody waits for it any more.
        if not reading.making.cancelled() and reading.making.exception() is None:
            reading.bytes = reading.making.result().size
            reading.desk.bytes += reading.bytes
            self.bytes_under_way += reading.bytes
        if not reading.holders:
            self._free(reading)

    def _free(self, reading: Reading) -> None:
        desk = reading.desk
        desk.bytes -= reading.bytes
        self.bytes_under_way -= reading.bytes
        desk.users -= 1
        if not desk.users:
            del self._desks[reading.question.tenant_id]
        self._freed.set()
        self._freed = asyncio.Event()

    async def _make(self, reading: Reading) -> Document:
        async with reading.desk.turn:
            if await self._is_small(reading.question):
                self._begin(reading)
                return await self._made_here(reading.question)
            while True:
                await self._room(reading.desk)
                async with self._making:
                    # Another tenant's document may have taken the room meanwhile.
                    if self._has_room(reading.desk):
                        self._begin(reading)
                        return await self._made_there(reading.question)

    def _begin(self, reading: Reading) -> None:
        self._close(reading)
        reading.begun.set()

    async def _room(self, desk: Desk) -> None:
        """Wait until the documents that are being sent leave room for another."""
        while not self._has_room(desk):
            await self._freed.wait()

    def _has_room(self, desk: Desk) -> bool:
        in_all = self._most_bytes * (BYTES_IN_ALL if desk.bytes else 2 * BYTES_IN_ALL)
        return desk.bytes < self._most_bytes and self.bytes_under_way < in_all

    async def _made_here(self, question: Question) -> Document:
        now = self._clock.now()
        found = await documents.find(self._store, question, now=now)
        await self.turns.take()
        document = documents.make(question, found, now=now)
        if document.facts.workers > SMALL_WORKERS:
            self._learn(question.tenant_id, is_large=True)
        return document

    async def _made_there(self, question: Question) -> Document:
        document = await self._reader.ask(question, now=self._clock.now())
        if question.query == RosterQuery() and document.facts.workers <= SMALL_WORKERS:
            self._learn(question.tenant_id, is_large=False)
        return document

    async def _is_small(self, question: Question) -> bool:
        limit = question.query.limit
        if limit is not None and limit <= SMALL_WORKERS:
            return True
        is_large = self._is_large.get(question.tenant_id)
        if is_large is None:
            is_large = await self._store.has_more_workers(question.tenant_id, than=SMALL_WORKERS)
            self._learn(question.tenant_id, is_large=is_large)
        return not is_large

    def _learn(self, tenant_id: str, *, is_large: bool) -> None:
        self._is_large[tenant_id] = is_large
        self._is_large.move_to_end(tenant_id)
        if len(self._is_large) > MOST_KNOWN:
            self._is_large.popitem(last=False)


async def _made(reading: Reading, until: float | IsWanted) -> Document:
    """The document; its own time is bounded by the store and the reader.

    A caller that goes away must not take it from the others.
    """
    if callable(until):
        await while_wanted(reading.making, until)
        return reading.making.result()
    try:
        async with asyncio.timeout_at(until):
            await reading.begun.wait()
    except TimeoutError:
        raise TooManyReads("Too much of what was read is not sent yet.") from None
    return await asyncio.shield(reading.making)
