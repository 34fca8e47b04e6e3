"""The feed: each tenant's log, read once a process and shared by all who follow it.

A follower is nothing but a number, the newest line it has had. The lines themselves stand once in
its tenant's channel, a bounded ring of the newest ones, each encoded once for everybody. So nobody
waits for a slow follower: it finds the ring gone past it and is given a fresh snapshot.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from collector.batches import Batch, Filter, Line, Lines, Snapshot, Vitals
from collector.clock import Clock, every
from collector.documents import Kind, Question
from collector.errors import Overloaded, TooManyReads, TooManySubscribers, Unauthenticated
from collector.reads import Reads
from collector.store.protocol import Store
from collector.values import NEVER, SECOND, Event, KeyChanges, Position, Principal

RING = 2048
PAGE = 500
# Pages of older lines that a channel keeps for those who come back together.
PAGES = 4
# Followers stand in so many groups, and about so many are woken in one turn of the event loop.
GROUPS = 32
WOKEN_AT_ONCE = 64
POLL_SECONDS = 1.0
GATHER_SECONDS = 0.25
VITALS_EVERY = 5 * SECOND
VITALS_OVERLAP = 2 * SECOND


class Feed:
    """All channels of this process."""

    def __init__(self, store: Store, clock: Clock, reads: Reads, *, limit: int) -> None:
        self._store = store
        self._clock = clock
        self._reads = reads
        self._limit = limit
        self._channels: dict[str, Channel] = {}
        # Looks for a position that are under way, by tenant.
        self._looks: dict[str, asyncio.Task[Position]] = {}
        self._stale: set[str] = set()
        self._woken = asyncio.Event()
        self._stopping = False
        # When keys end that were revoked or rotated while this process ran. Ids of eight
        # characters: a million of them in one process's life would be 100 MB.
        self._ends: dict[str, int] = {}
        store.on_change(self.wake)

    @property
    def followers(self) -> int:
        return sum(len(channel.followers) for channel in self._channels.values())

    def wake(self, tenants: Iterable[str]) -> None:
        """These tenants' logs grew, or may have."""
        self._stale.update(tenant_id for tenant_id in tenants if tenant_id in self._channels)
        if self._stale:
            self._woken.set()

    async def follow(self) -> None:
        """Read on in all logs together: where one grew, and once a second lest that went unheard.

        The first change goes out at once; what follows close on it goes out together.
        """
        async with asyncio.TaskGroup() as loops:
            loops.create_task(every(GATHER_SECONDS, self._read_stale, "the logs were not read"))
            loops.create_task(every(POLL_SECONDS, self.poll, "the logs were not read"))
            loops.create_task(every(POLL_SECONDS, self.end_expired, "streams were not ended"))
            loops.create_task(every(POLL_SECONDS, self.end_signed_out, "streams were not ended"))

    async def poll(self) -> None:
        """Not those known to have grown: a look before their turn cuts in two what is gathered."""
        await self._read_on(self._channels.keys() - self._stale)

    async def _read_stale(self) -> None:
        await self._woken.wait()
        self._woken.clear()
        stale, self._stale = self._stale, set()
        await self._read_on(stale)

    async def _read_on(self, tenants: Collection[str]) -> None:
        """One query for all of them, and another while it gives all that it may."""
        found = PAGE
        while found == PAGE:
            asked = {name: self._channels[name] for name in tenants if name in self._channels}
            heads = {name: channel.head for name, channel in asked.items()}
            news = await self._store.news(heads, limit=PAGE)
            for tenant_id, events in news.items():
                # Not one that came meanwhile: it may stand elsewhere than where we read from.
                if self._channels.get(tenant_id) is asked[tenant_id]:
                    asked[tenant_id].take(events)
            found = sum(map(len, news.values()))

    def stop(self) -> None:
        """End every stream cleanly; their clients come back, to whoever is there then."""
        self._stopping = True
        self._end(lambda _follower: True)

    def heed(self, changes: KeyChanges) -> None:
        """End the streams of keys that were revoked; those of rotated ones end when they do."""
        self._ends |= {**changes.ends, **dict.fromkeys(changes.revoked, 0)}
        self._end(lambda follower: follower.principal.key_id in changes.revoked)

    async def end_expired(self) -> None:
        """End the streams whose key's time is up, whatever else is known of the key."""
        self._end(lambda follower: self._has_ended(follower.principal))

    async def end_signed_out(self) -> None:
        """End the streams whose session is gone, wherever that was ended: one query for all."""
        followers = (each for channel in self._channels.values() for each in channel.followers)
        session_ids = {each.principal.session_id for each in followers}
        if open_ones := {each for each in session_ids if each is not None}:
            self.end_sessions(await self._store.sessions_gone(open_ones))

    def end_sessions(self, gone: Collection[str]) -> None:
        """End the streams of these sessions."""
        self._end(lambda follower: follower.principal.session_id in gone)

    def _has_ended(self, principal: Principal) -> bool:
        now = self._clock.now()
        return principal.has_ended(now) or self._ends.get(principal.key_id, NEVER) <= now

    def _end(self, is_meant: Callable[[Follower], bool]) -> None:
        for channel in list(self._channels.values()):
            ended = [each for each in channel.followers if not each.has_ended and is_meant(each)]
            for follower in ended:
                follower.has_ended = True
            if ended:
                channel.wake_followers()

    async def subscribe(
        self,
        principal: Principal,
        cursor: str | None,
        wanted: Filter,
        *,
        snapshots: Kind = "snapshot",
        vitals: bool = True,
        wait: float | None = None,
    ) -> Subscription:
        """Begin to follow from that cursor; the caller iterates the batches to the end.

        `snapshots` says which document a snapshot is. With `wait` the batches end when there is
        nothing to tell after that many seconds.
        """
        until = None if wait is None else asyncio.get_running_loop().time() + wait
        if wait is None:
            position = await self._shared_position(principal.tenant_id, cursor)
            # Hundreds that waited for one look would else begin in one turn of the loop.
            await self._reads.turns.take()
        else:
            position = await self._store.position(principal.tenant_id)
        # After the read, and with nothing awaited from here on: nobody slips past a limit, a
        # stop or a revocation that came meanwhile.
        self._admit(principal)
        follower = Follower(principal, wanted, snapshots, with_vitals=vitals, until=until)
        channel = self._join(principal.tenant_id, position, follower)
        return Subscription(self, channel, position, follower, cursor)

    async def _shared_position(self, tenant_id: str, cursor: str | None) -> Position:
        """The position for a stream; all that come before the first one's channel share one look.

        A stream hears of what such a look has missed as soon as its channel reads on.
        """
        known = self._known_position(tenant_id, cursor)
        if known is not None:
            return known
        look = self._looks.get(tenant_id)
        if look is None:
            look = self._looks[tenant_id] = asyncio.create_task(self._store.position(tenant_id))
            look.add_done_callback(lambda _: self._looks.pop(tenant_id))
        position = await asyncio.shield(look)
        if cursor is None or resumed(cursor, position) is not None:
            return position
        return await self._store.position(tenant_id)

    def _known_position(self, tenant_id: str, cursor: str | None) -> Position | None:
        """Where the log stands, as far as a stream needs it and its channel knows."""
        channel = self._channels.get(tenant_id)
        if channel is None:
            return None
        position = Position(channel.epoch, 0, channel.head)
        n = resumed(cursor, position)
        is_near = n is not None and (n == channel.head or channel.has_lines_after(n))
        return position if cursor is None or is_near else None

    def _admit(self, principal: Principal) -> None:
        if self._stopping:
            raise Overloaded("The collector is stopping.")
        if self._has_ended(principal):
            raise Unauthenticated("The key is revoked or expired.")
        channel = self._channels.get(principal.tenant_id)
        if channel is not None and len(channel.followers) >= self._limit:
            raise TooManySubscribers(f"This tenant has {self._limit} subscribers already.")

    def _join(self, tenant_id: str, position: Position, follower: Follower) -> Channel:
        channel = self._channels.get(tenant_id)
        if channel is None:
            channel = Channel(self._store, self._clock, self._reads, tenant_id, position)
            self._channels[tenant_id] = channel
        channel.join(follower)
        return channel

    def leave(self, channel: Channel, follower: Follower) -> None:
        channel.part(follower)
        if not channel.followers and self._channels.get(channel.tenant_id) is channel:
            channel.close()
            del self._channels[channel.tenant_id]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A caller that follows its tenant's log from somewhere, until its batches end."""

    feed: Feed
    channel: Channel
    position: Position
    follower: Follower
    cursor: str | None

    def rewound(self, lines: int) -> Subscription:
        """The same from that many lines before the newest, or as many as there are."""
        n = max(self.position.head - lines, self.position.floor - 1)
        return replace(self, cursor=f"{self.position.epoch}.{n}")

    def batches(self) -> AsyncGenerator[Batch]:
        """What to send, until the key or the collector goes; the caller closes then."""
        after = resumed(self.cursor, self.position)
        return self.follower.batches(self.channel, after, self.position.head)

    def close(self) -> None:
        """Follow no longer. Twice does no harm."""
        self.feed.leave(self.channel, self.follower)


def resumed(cursor: str | None, position: Position) -> int | None:
    """The line number to go on after; None where only a snapshot helps."""
    epoch, _, number = (cursor or "").partition(".")
    if epoch != position.epoch or not (number.isascii() and number.isdigit()):
        return None
    n = int(number[:19])
    return n if position.floor - 1 <= n <= position.head else None


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
        # By what their followers want.
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
        except TooManyReads:
            return
        self.wake_followers()

    async def _vitals(self, wanted: Filter, since: int) -> Vitals:
        question = Question("vitals", self.tenant_id, wanted.query(seen_since=since))
        async with self.reads.document(question) as document:
            return Vitals(document)

    def woken(self, follower: Follower) -> asyncio.Event:
        return self._wakings.of(follower)

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
        # Each is set once, and another put in its place: whoever waits on it has looked already.
        self._events = [asyncio.Event() for _ in range(GROUPS)]
        self._sizes = [0] * GROUPS
        self._next = 0
        self._to_wake = 0

    def join(self, follower: Follower) -> None:
        group = self._sizes.index(min(self._sizes))
        self._sizes[group] += 1
        follower.group = group

    def leave(self, follower: Follower) -> None:
        self._sizes[follower.group] -= 1

    def of(self, follower: Follower) -> asyncio.Event:
        """What the follower waits on."""
        return self._events[follower.group]

    def wake(self) -> None:
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_group)
        # A round that is under way goes on until each group was woken after this call.
        self._to_wake = GROUPS

    def _wake_group(self) -> None:
        woken = 0
        while self._to_wake and woken < WOKEN_AT_ONCE:
            event, self._events[self._next] = self._events[self._next], asyncio.Event()
            event.set()
            woken += self._sizes[self._next]
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
                async with self._snapshot(channel) as snapshot:
                    n = snapshot.document.position.head
                    yield snapshot
                # While the follower waits for news, nothing keeps what it was sent.
                del snapshot
            elif vitals is not None and vitals is not seen:
                seen = vitals
                if vitals.document.pieces:
                    yield vitals
            elif not await self._woken_in_time(channel.woken(self)):
                return

    async def _woken_in_time(self, woken: asyncio.Event) -> bool:
        """Wait for news; only waiting has an end, what is there to be read is always read."""
        if self._until is None:
            return await woken.wait()
        try:
            async with asyncio.timeout_at(self._until):
                return await woken.wait()
        except TimeoutError:
            return False

    async def _log_after(self, n: int, channel: Channel, head: int) -> AsyncGenerator[Lines]:
        """The way from an older cursor up to the ring, page by page from the store.

        The channel may not have read on to `head` yet, where the log stood when we came.
        """
        while not (self.has_ended or channel.has_lines_after(n) or n >= max(head, channel.head)):
            # Who asks once wants all that one answer may have.
            lines = await (channel.page_after if self._until is None else channel.lines_after)(n)
            if not lines or lines[0].n != n + 1:
                return
            n = lines[-1].n
            yield Lines(lines, lines[-1].cursor, {})

    @asynccontextmanager
    async def _snapshot(self, channel: Channel) -> AsyncIterator[Snapshot]:
        """A snapshot, in its turn; its place is kept until the caller has sent it."""
        question = Question(self._snapshots, channel.tenant_id, self.wanted.query())
        # Whoever waits for one answer is refused like other requests, a stream is not.
        is_wanted = (lambda: not self.has_ended) if self._until is None else None
        async with channel.reads.document(question, stream=is_wanted) as document:
            yield Snapshot(document)
