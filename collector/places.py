"""Places for large reads: so many for each tenant and in all, handed out to tenants in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from collector.errors import Overloaded, TooManyReads

# All tenants together may have this many times what one may.
SHARES_IN_ALL = 8
# So many requests of one tenant may wait for a place.
MAX_WAITING = 64
# A stream that waits looks this often whether it is still wanted.
LOOK_SECONDS = 1

# A request waits until a time of the loop's clock, a stream for as long as this says so.
IsWanted = Callable[[], bool]


@dataclass(slots=True, eq=False)
class Share:
    """The places of one tenant, for requests or for streams: neither keeps the other waiting."""

    under_way: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Places:
    """All places of this process."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._is_stopping = False
        self._shares: dict[tuple[str, bool], Share] = {}
        # Shares that somebody waits for, the next one first.
        self._queue: deque[Share] = deque()
        self.under_way = 0

    def stop(self) -> None:
        """Refuse everybody who waits for a place, and whoever comes now."""
        self._is_stopping = True
        for share in self._shares.values():
            for place in share.waiting:
                if not place.done():
                    place.set_exception(Overloaded.stopping())
            share.waiting.clear()

    @asynccontextmanager
    async def hold(self, tenant_id: str, until: float | IsWanted) -> AsyncIterator[None]:
        """Wait for a place, and keep it; see `Reads.document` for who waits how long."""
        if self._is_stopping:
            raise Overloaded.stopping()
        key = (tenant_id, callable(until))
        share = self._shares.setdefault(key, Share())
        try:
            if share.waiting or not self._has_place(share):
                await self._wait(share, until)
            else:
                self._take(share)
            try:
                yield
            finally:
                self._give_back(share)
        finally:
            if not (share.under_way or share.waiting):
                self._shares.pop(key, None)

    def _has_place(self, share: Share) -> bool:
        in_all = self._at_once * SHARES_IN_ALL
        return share.under_way < self._at_once and self.under_way < in_all

    def _take(self, share: Share) -> None:
        share.under_way += 1
        self.under_way += 1

    def _give_back(self, share: Share) -> None:
        share.under_way -= 1
        self.under_way -= 1
        self._hand_out()

    async def _wait(self, share: Share, until: float | IsWanted) -> None:
        if not callable(until) and len(share.waiting) >= MAX_WAITING:
            raise TooManyReads("Too many reads of this tenant wait for their turn.")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append(place)
        if len(share.waiting) == 1:
            self._queue.append(share)
        try:
            await (while_wanted(place, until) if callable(until) else _in_time(place, until))
        except BaseException:
            self._give_up(share, place)
            raise

    def _give_up(self, share: Share, place: asyncio.Future[None]) -> None:
        if place.done() and not place.cancelled() and place.exception() is None:
            # The place was handed out in the very moment that nobody wanted it any more.
            self._give_back(share)
        elif place in share.waiting:
            share.waiting.remove(place)

    def _hand_out(self) -> None:
        """Give free places to those who wait: one to each tenant in turn."""
        passed_over = 0
        while passed_over < len(self._queue):
            share = self._queue.popleft()
            if not share.waiting:
                continue
            if not self._has_place(share):
                self._queue.append(share)
                passed_over += 1
                continue
            passed_over = 0
            place = share.waiting.popleft()
            if not place.done():
                self._take(share)
                place.set_result(None)
            if share.waiting:
                self._queue.append(share)


async def _in_time(place: asyncio.Future[None], until: float) -> None:
    try:
        async with asyncio.timeout_at(until):
            await place
    except TimeoutError:
        raise TooManyReads("Other reads of this tenant took too long.") from None


async def while_wanted(what: asyncio.Future[Any], is_wanted: IsWanted) -> None:
    """Return when this is done, or raise its error; raise Overloaded once nobody wants it."""
    while not what.done():
        await asyncio.wait([what], timeout=LOOK_SECONDS)
        if not is_wanted():
            raise Overloaded("The stream has ended.")
    what.result()
