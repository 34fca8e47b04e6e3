"""The process that writes beats to SQLite: `python -m collector.store.writer_process FD PATH`.

Batches come by a socket, and each gets an answer. In the process that takes the beats in, SQLite
would share an interpreter with the work on requests, and the two would wait for one another at
every step. It ends when the socket does, and so never outlives whom it writes for.
"""

from __future__ import annotations

import marshal
import signal
import socket
import sqlite3
import struct
import sys
from collections.abc import Sequence
from io import BufferedRWPair
from pathlib import Path
from typing import Any, Final

from collector.store.sqlite_batches import FAULTS, commit, connect, store_error

LENGTH: Final = struct.Struct("!I")

# The name of an error and its detail, or "" and the tenants whose log grew.
Answer = tuple[str, Any]


def framed(message: Any) -> bytes:
    content = marshal.dumps(message)
    return LENGTH.pack(len(content)) + content


def read(content: bytes) -> Any:
    """What a frame holds. Only the two ends of one socket ever speak here."""
    return marshal.loads(content)  # noqa: S302


def serve(line: BufferedRWPair, path: Path) -> None:
    """Commit each batch that comes, until no more can."""
    writing = Writing(path)
    while head := line.read(LENGTH.size):
        beats, now, gone = read(line.read(*LENGTH.unpack(head)))
        line.write(framed(writing.answer(beats, now, gone)))
        line.flush()


class Writing:
    """What there is to write with."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw: sqlite3.Connection | None = None

    def answer(self, beats: Sequence[tuple[Any, ...]], now: int, gone: int) -> Answer:
        try:
            return "", list(self._commit(beats, now, gone))
        except FAULTS as error:
            fault = store_error(error)
            return type(fault).__name__, fault.detail

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
    with socket.socket(fileno=int(descriptor)) as ours, ours.makefile("rwb") as line:
        serve(line, Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
