"""Whether the work itself goes on, and not just the process.

A worker that is not alive in this sense stops beating, so that the collector's TTL tells the truth.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

# How long an event loop may take to come round before it counts as hanging.
LAG_SECONDS = 5.0


class Liveness:
    """What the host gave to judge by: a function, an event loop, both or nothing.

    A loop is anything that runs a function for another thread: asyncio's by
    `call_soon_threadsafe`, a trio token by `run_sync_soon`. ValueError says what is neither.
    """

    def __init__(self, alive: Callable[[], object] | None, loop: Any) -> None:
        _refuse_what_is_no_probe(alive)
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
        except BaseException as failed:
            # Also a cancellation or an exit: they are the host's, and this thread is not.
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
    """ValueError for what is no loop."""
    if loop is None:
        return None
    for name in ("call_soon_threadsafe", "run_sync_soon"):
        door: Callable[[Callable[[], None]], object] | None = getattr(loop, name, None)
        if callable(door):
            return door
    raise ValueError(f"loop must be asyncio's or a trio token, not {type(loop).__name__}")


def _refuse_what_is_no_probe(alive: Any) -> None:
    if alive is None:
        return
    if not callable(alive):
        raise ValueError(f"alive must be a function, not {type(alive).__name__}")
    if inspect.iscoroutinefunction(alive) or inspect.iscoroutinefunction(type(alive).__call__):
        raise ValueError("alive must be a plain function: there is no loop to run an async one")
