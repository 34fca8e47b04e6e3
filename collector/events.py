"""The feed: each tenant's log, read once a process and shared by all who follow it.

A follower is nothing but a number, the newest line it has had. The lines themselves stand once in
its tenant's channel, a bounded ring of the newest ones, each encoded once for everybody. So nobody
waits for a slow follower: it finds the ring gone past it and is given a fresh snapshot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, replace

from collector.batches import Batch, Filter, Line, Lines, Snapshot, Vitals
from collector.clock import Clock, every
from collector.errors import Overloaded, TooManySubscribers, Unauthenticated
from collector.store.protocol import Store
from collector.values import (
    NEVER,
    SECOND,
    Event,
    KeyChanges,
    Position,
    Principal,
    RosterQuery,
)

RING = 2048
PAGE = 500
POLL_SECONDS = 1.0
GATHER_SECONDS = 0.25
VITALS_EVERY = 5 * SECOND
VITALS_OVERLAP = 2 * SECOND


class Feed:
    """All channels of this process."""

    def __init__(self, store: Store, clock: Clock, *, limit: int) -> None:
        self._store = store
        self._clock = clock
        self._limit = limit
        self._channels: dict[str, Channel] = {}
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
        vitals: bool = True,
        wait: float | None = None,
    ) -> Subscription:
        """Begin to follow from that cursor; the caller iterates the batches to the end.

        With `wait` the batches end when there is nothing to tell after that many seconds.
        """
        until = None if wait is None else asyncio.get_running_loop().time() + wait
        position = await self._store.position(principal.tenant_id)
        # After the read, and with nothing awaited from here on: nobody slips past a limit, a
        # stop or a revocation that came meanwhile.
        self._admit(principal)
        follower = Follower(principal, wanted, with_vitals=vitals, until=until)
        channel = self._join(principal.tenant_id, position, follower)
        return Subscription(self, channel, position, follower, cursor)

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
            channel = Channel(self._store, self._clock, tenant_id, position)
            self._channels[tenant_id] = channel
        channel.followers.add(follower)
        return channel

    def leave(self, channel: Channel, follower: Follower) -> None:
        channel.followers.discard(follower)
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

    def batches(self) -> AsyncIterator[Batch]:
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

    def __init__(self, store: Store, clock: Clock, tenant_id: str, position: Position) -> None:
        self.store = store
        self.clock = clock
        self.tenant_id = tenant_id
        self.epoch = position.epoch
        self.head = position.head
        self.followers: set[Follower] = set()
        self.vitals: Vitals | None = None
        # Set once, and another in its place: whoever waits has looked already.
        self.woken = asyncio.Event()
        self._vitals_at = clock.now()
        self._ring: deque[Line] = deque(maxlen=RING)
        # By the number it begins after. One is kept: all but those who lag stand at one place.
        self._batch: dict[int, Lines] = {}
        self._task = asyncio.create_task(
            every(VITALS_EVERY / SECOND, self.take_vitals, "vitals were not read")
        )

    def close(self) -> None:
        self._task.cancel()

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

    def take(self, events: list[Event]) -> None:
        """What was read of the log; some of it may be here already."""
        news = [event for event in events if event.n > self.head]
        if not news:
            return
        if news[0].n != self.head + 1:
            self._ring.clear()  # the log was cut past us: no follower has a way through
        self._ring.extend(Line(event, self.epoch) for event in news)
        self._batch = {}
        self.head = news[-1].n
        self.wake_followers()

    async def take_vitals(self) -> None:
        """One query for all followers: who beat since the last time."""
        if not any(follower.with_vitals for follower in self.followers):
            return
        now = self.clock.now()
        # A little over: a beat that was stamped before the last look may be committed after it.
        query = RosterQuery(seen_since=self._vitals_at - VITALS_OVERLAP)
        workers = await self.store.roster(self.tenant_id, query, now=now)
        self._vitals_at = now
        if workers:
            self.vitals = Vitals(now, workers, {})
            self.wake_followers()

    def wake_followers(self) -> None:
        self.woken.set()
        self.woken = asyncio.Event()


class Follower:
    """One subscriber: how far it has come, and whether it may go on."""

    def __init__(
        self, principal: Principal, wanted: Filter, *, with_vitals: bool, until: float | None
    ) -> None:
        self._until = until
        self.principal = principal
        self.with_vitals = with_vitals
        self.has_ended = False
        self._wanted = wanted

    async def batches(self, channel: Channel, after: int | None, head: int) -> AsyncIterator[Batch]:
        n, seen = after, channel.vitals
        if n is not None:
            async for page in self._log_after(n, channel, head):
                n = page.lines[-1].n
                yield self._wanted.of(page)
        while not self.has_ended:
            if n is not None and channel.has_lines_after(n):
                batch = channel.after(n)
                n = batch.lines[-1].n
                yield self._wanted.of(batch)
            elif n is None or n < channel.head:
                snapshot, n = await self._snapshot(channel)
                yield snapshot
            elif self.with_vitals and channel.vitals is not None and channel.vitals is not seen:
                seen = channel.vitals
                yield self._wanted.of(seen)
            elif not await self._woken_in_time(channel.woken):
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

    async def _log_after(self, n: int, channel: Channel, head: int) -> AsyncIterator[Lines]:
        """The way from an older cursor up to the ring, page by page from the store.

        The channel may not have read on to `head` yet, where the log stood when we came.
        """
        while not (self.has_ended or channel.has_lines_after(n) or n >= max(head, channel.head)):
            events = await channel.store.events(channel.tenant_id, after=n, limit=PAGE)
            if not events or events[0].n != n + 1:
                return
            lines = [Line(event, channel.epoch) for event in events]
            n = lines[-1].n
            yield Lines(lines, lines[-1].cursor, {})

    async def _snapshot(self, channel: Channel) -> tuple[Snapshot, int]:
        now = channel.clock.now()
        workers, position = await channel.store.snapshot(
            channel.tenant_id, self._wanted.query(), now=now
        )
        return Snapshot(f"{position.epoch}.{position.head}", now, workers), position.head
