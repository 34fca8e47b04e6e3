"""Time as the cases know it: really waited for, or moved while all of them wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

SECOND = 1_000_000
Move = Callable[[int], Awaitable[None]]


class Clock(Protocol):
    """One timeline for all cases that run together."""

    def enter(self) -> None:
        """One more case runs."""
        ...

    def leave(self) -> None:
        """A case has ended."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once that much of the target's time has passed."""
        ...


class RealClock:
    """A target whose time nobody moves."""

    def enter(self) -> None:
        pass

    def leave(self) -> None:
        pass

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class MovedClock:
    """A target's time that stands still while any case has something to do.

    Once all of them wait, it is moved to the first moment that one of them waits for.
    """

    def __init__(self, move: Move) -> None:
        self._move = move
        self._now = 0
        self._running = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._moving: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self._running += 1

    def leave(self) -> None:
        self._running -= 1
        self._move_if_all_wait()

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait = (self._now + round(seconds * SECOND), woken)
        self._waiting.append(wait)
        self._move_if_all_wait()
        try:
            await woken
        finally:
            # A case that ran out of time waits no longer.
            if wait in self._waiting:
                self._waiting.remove(wait)

    def _move_if_all_wait(self) -> None:
        is_moving = self._moving is not None and not self._moving.done()
        if self._waiting and len(self._waiting) == self._running and not is_moving:
            self._moving = asyncio.create_task(self._move_on())

    async def _move_on(self) -> None:
        until = min(due for due, _ in self._waiting)
        try:
            await self._move(until - self._now)
        except Exception as error:
            self._fail(error)
            return
        self._now = until
        due = [woken for moment, woken in self._waiting if moment <= until]
        self._waiting = [each for each in self._waiting if each[0] > until]
        for woken in due:
            if not woken.done():
                woken.set_result(None)

    def _fail(self, error: Exception) -> None:
        """A target that can't be moved any more: everybody who waits hears it."""
        waiting, self._waiting = self._waiting, []
        for _, woken in waiting:
            if not woken.done():
                woken.set_exception(error)
