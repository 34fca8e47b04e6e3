"""Whether the work itself goes on, and not just the process.

A worker that is not alive in this sense stops beating, so that the collector's TTL tells the truth.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

# How long an event loop may take to come round before it counts as hanging.
LAG_SECONDS = 5.0


class Liveness:
    """What the host gave to judge by: a function, an event loop, both or nothing.

    A loop is anything that runs a function for another thread: asyncio's by
    `call_soon_threadsafe`, a trio token by `run_sync_soon`.
    """

    def __init__(self, alive: Callable[[], object] | None, loop: Any) -> None:
        self._alive = alive
        self._run_soon = _door_of(loop)
        self._echo: threading.Event | None = None
        self._is_abandoned = False

    def trouble(self) -> str | None:
        """Why this worker is not alive; None if it is."""
        try:
            if self._run_soon is not None and not self._hears():
                return f"its event loop has not come round for {LAG_SECONDS:g} s"
            if self._alive is not None and not self._alive():
                return "its own probe says that it is not alive"
        except Exception as failed:
            return f"its probe failed: {type(failed).__name__}: {failed}"
        return None

    def abandon(self) -> None:
        """From another thread: nobody wants to know any more."""
        self._is_abandoned = True
        if (echo := self._echo) is not None:
            echo.set()

    def _hears(self) -> bool:
        assert self._run_soon is not None
        # What a hanging loop was handed is not handed to it again.
        if (echo := self._echo) is None:
            echo = self._echo = threading.Event()
            self._run_soon(echo.set)
        heard = self._is_abandoned or echo.wait(LAG_SECONDS)
        if heard:
            self._echo = None
        return heard


def _door_of(loop: Any) -> Callable[[Callable[[], None]], object] | None:
    if loop is None:
        return None
    door: Callable[[Callable[[], None]], object]
    door = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
    return door
