"""Large work in small pieces: so many in one turn of the event loop, whoever they are for.

Between two turns every connection that has something to say is heard, so a beat waits for a few
pieces at most, however many readers there are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial


class Turns:
    """First come, first served."""

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._taken = 0
        self._is_coming = False
        self._waiting: deque[Callable[[], None]] = deque()

    def is_mine(self) -> bool:
        """Take a place in this turn of the loop, if there is one and nobody waits for it."""
        if self._taken >= self._at_once or self._waiting:
            return False
        self._take()
        return True

    def call(self, work: Callable[[], None]) -> None:
        """Call this in a turn that has a place for it, which is then taken."""
        self._waiting.append(work)
        self._expect_turn()

    async def take(self) -> None:
        """Return in a turn of the loop that has a place for the caller."""
        if self.is_mine():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call(partial(_come, turn))
        await turn

    def _take(self) -> None:
        self._taken += 1
        self._expect_turn()

    def _expect_turn(self) -> None:
        if not self._is_coming:
            self._is_coming = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_coming = False
        self._taken = 0
        for _ in range(min(self._at_once, len(self._waiting))):
            self._take()
            self._waiting.popleft()()


def _come(turn: asyncio.Future[None]) -> None:
    # A caller that was cancelled leaves its place unused.
    if not turn.done():
        turn.set_result(None)
