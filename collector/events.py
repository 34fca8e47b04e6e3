"""The feed: each tenant's log, read once a process and shared by all who follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from dataclasses import dataclass, replace

from collector.batches import Batch, Filter
from collector.channels import PAGE, Channel, Follower
from collector.clock import Clock, every
from collector.documents import Kind
from collector.errors import Overloaded, TooManySubscribers, Unauthenticated
from collector.reads import Reads
from collector.store.protocol import Store
from collector.values import NEVER, KeyChanges, Position, Principal

POLL_SECONDS = 1.0
GATHER_SECONDS = 0.25


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
            raise Overloaded.stopping()
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

    def end(self) -> None:
        """Its batches end with the next one; the client may come back."""
        self.follower.has_ended = True

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
