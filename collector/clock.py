"""The one clock: an anchor and the monotonic clock, so a jumping wall clock moves nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from collector.errors import StoreError
from collector.values import SECOND

ANCHOR_EVERY_SECONDS = 10
MAX_ROUND_TRIP = SECOND // 4
_log = logging.getLogger(__name__)

# Past this, stamps of this process and the wall clock tell different stories.
MAX_SKEW = 5 * SECOND


class Clock(Protocol):
    """Epoch microseconds; all that the product knows of time."""

    def now(self) -> int: ...

    def skew(self) -> int:
        """How far the wall clock of this machine is ahead of `now`."""
        ...

    def anchor(self, reading: int) -> None:
        """From here on, `now` continues from reading."""
        ...


class SystemClock:
    """Anchored to the wall clock at first, then to whatever `anchor` is told."""

    def __init__(self) -> None:
        self._offset = 0
        self.anchor(_wall())

    def now(self) -> int:
        return time.monotonic_ns() // 1000 + self._offset

    def skew(self) -> int:
        return _wall() - self.now()

    def anchor(self, reading: int) -> None:
        self._offset = reading - time.monotonic_ns() // 1000


async def anchor_to(
    read: Callable[[], Awaitable[int | None]], clock: Clock, *, within: int | None = None
) -> None:
    """Take the store's clock for ours, where it has one: all nodes then share one timeline.

    The reading was made somewhere within the round trip; half of it is the best guess. One that
    took longer than `within`, for the wait for a connection say, would only make it worse.
    """
    asked = time.monotonic_ns()
    reading = await read()
    took = (time.monotonic_ns() - asked) // 1000
    if reading is not None and (within is None or took <= within):
        clock.anchor(reading + took // 2)


async def stay_anchored(read: Callable[[], Awaitable[int | None]], clock: Clock) -> None:
    """Anchor again every 10 s, for ever; a store that does not answer leaves the clock running."""
    again = partial(anchor_to, read, clock, within=MAX_ROUND_TRIP)
    await every(ANCHOR_EVERY_SECONDS, again, "the store's clock was not read")


async def every(
    seconds: float | Callable[[], float], work: Callable[[], Awaitable[None]], failure: str
) -> None:
    """Do the work every so many seconds, for ever; a store that fails costs it one turn."""
    while True:
        await asyncio.sleep(seconds() if callable(seconds) else seconds)
        try:
            await work()
        except StoreError as error:
            _log.warning("%s: %s", failure, error)
        except Exception:
            # A defect must not end a loop that nobody would miss before it is needed.
            _log.exception(failure)


def _wall() -> int:
    return time.time_ns() // 1000
