"""The end of a process that was told to stop, whatever hangs in it.

A thread of its own counts the time, so that an event loop, a store or a thread that hangs does not
keep the process. What was acknowledged is committed by then: an answer waits for its commit.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable

from collector.cli.exits import CUT_OFF

# The end itself takes this long: the last log line, and the end of the writer's process.
RESERVE_SECONDS = 0.5
# A log that nobody reads hangs as well.
LOG_SECONDS = 0.2
_log = logging.getLogger(__name__)


class Watchdog:
    """Ends the process so many seconds after the first `start`, unless it has ended before."""

    def __init__(self, seconds: float, abandon: Callable[[], None]) -> None:
        self._seconds = seconds
        self._abandon = abandon
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._end, name="watchdog", daemon=True).start()

    def start(self) -> None:
        """Safe in a signal's handler: one that started a thread could wait for itself."""
        self._told.put(None)

    def _end(self) -> None:
        self._told.get()
        time.sleep(self._seconds - min(RESERVE_SECONDS, self._seconds / 4))
        _within_a_moment(self._tell)
        _within_a_moment(self._abandon)
        os._exit(CUT_OFF)

    def _tell(self) -> None:
        _log.error("not stopped within %g s: ended with what hangs", self._seconds)
        for handler in logging.getLogger().handlers:
            handler.flush()


def _within_a_moment(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LOG_SECONDS)
