"""The process that writes beats to SQLite: `python -m collector.store.writer_process FD PATH`.

Batches come by a socket, and each gets a reply; so does the start. In the process that takes the
beats in, SQLite would share an interpreter with the work on requests, and the two would wait for
one another at every step. It ends when the socket does, after the batch that it has in hand.
"""

from __future__ import annotations

import marshal
import signal
import socket
import sqlite3
import struct
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedRWPair
from pathlib import Path
from typing import Any, Final

from collector.store.sqlite_batches import FAULTS, commit, connect, store_error

LENGTH: Final = struct.Struct("!I")
# What went wrong that is no fault of SQLite's.
DEFECT: Final = "defect"

# The name of an error and its detail, or "" and the tenants whose log grew.
Reply = tuple[str, Any]
READY: Final[Reply] = ("", [])


def framed(message: Any) -> bytes:
    content = marshal.dumps(message)
    return LENGTH.pack(len(content)) + content


def unframed(content: bytes) -> Any:
    """What a frame holds. Only the two ends of one socket ever speak here."""
    return marshal.loads(content)  # noqa: S302


def serve(line: BufferedRWPair, path: Path) -> None:
    """Commit each batch that comes, until no more can."""
    hand = Hand(path)
    _send(line, READY)
    while len(head := line.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        content = line.read(length)
        if len(content) < length:
            return
        _send(line, hand.reply(*unframed(content)))


def _send(line: BufferedRWPair, reply: Reply) -> None:
    line.write(framed(reply))
    line.flush()


class Hand:
    """Writes batches, over a connection that is made anew after one that can't be trusted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw: sqlite3.Connection | None = None

    def reply(self, beats: Sequence[tuple[Any, ...]], now: int, gone: int) -> Reply:
        try:
            return "", list(self._commit(beats, now, gone))
        except FAULTS as error:
            fault = store_error(error)
            return type(fault).__name__, fault.detail
        except Exception:
            return DEFECT, traceback.format_exc()

    def _commit(self, beats: Sequence[tuple[Any, ...]], now: int, gone: int) -> frozenset[str]:
        raw = self._raw = self._raw or connect(self._path)
        try:
            return commit(raw, beats, now, gone)
        finally:
            if raw.in_transaction:
                # It ends with the connection: until then nobody could write.
                raw.close()
                self._raw = None


def main(descriptor: str, path: str) -> None:
    # Who stops everybody at once means the collector: what it still has to write is written.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    # The other end may be gone at any time, and nobody is left then who would want to know.
    ours = socket.socket(fileno=int(descriptor))
    with suppress(ConnectionError), ours, ours.makefile("rwb") as line:
        serve(line, Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
