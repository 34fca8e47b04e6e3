"""The producer's own clock: what it waits by and what it calls now."""

from __future__ import annotations

import threading
import time


class Clock:
    """The machine's; a test brings one that it moves."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()

    def wait(self, turn: threading.Condition, seconds: float) -> None:
        """Until `turn` is notified or `seconds` have passed; its lock is held."""
        turn.wait(max(seconds, 0.0))
