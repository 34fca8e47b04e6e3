"""A sign of life on the terminal while a command waits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from threading import Event, Thread

FRAMES = "|/-\\"
# Who is answered at once sees nothing.
AFTER_SECONDS = 0.4
FRAME_SECONDS = 0.1
ERASE = "\r\x1b[K"


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Turn on stderr for as long as the block takes, where a person looks; nowhere else."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    done = Event()
    thread = Thread(target=_spin, args=(what, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _spin(what: str, done: Event) -> None:
    if done.wait(AFTER_SECONDS):
        return
    for frame in cycle(FRAMES):
        sys.stderr.write(f"\r{frame} {what}")
        sys.stderr.flush()
        if done.wait(FRAME_SECONDS):
            break
    sys.stderr.write(ERASE)
    sys.stderr.flush()
