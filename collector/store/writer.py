"""Our end of the process that writes beats to SQLite."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from collector.errors import StoreUnavailable, Unstorable
from collector.store import writer_process
from collector.store.writer_process import LENGTH, Answer, framed, read
from collector.values import Beat

# It has as long to end as a statement may wait for others.
ENDING_SECONDS = 15

_FAULTS = {fault.__name__: fault for fault in (StoreUnavailable, Unstorable)}


class Writer:
    """Starts the process when there is something to write, and again after it has died."""

    def __init__(self, path: Path, lock: Callable[[], IO[str] | None]) -> None:
        self._path = path
        # Whom the store is locked for is not gone before this process is.
        self._lock = lock
        self._line: Line | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    async def open(self) -> None:
        """Have it ready, unless it is."""
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if self._line is not None and self._line.is_open:
            return
        # Who has died is no longer waited for.
        self._processes = [each for each in self._processes if each.poll() is None]
        process, ours = await asyncio.to_thread(_start, self._path, self._lock())
        self._processes.append(process)
        loop = asyncio.get_running_loop()
        _, self._line = await loop.create_unix_connection(Line, sock=ours)

    async def commit(self, beats: Sequence[Beat], now: int, gone: int) -> frozenset[str]:
        """As `Store.commit`; one call at a time."""
        await self.open()
        assert self._line is not None
        try:
            fault, said = await self._line.ask((list(map(tuple, beats)), now, gone))
        except BaseException:
            # Who went away must not leave an answer to whoever comes next.
            self._hang_up()
            raise
        if fault:
            raise _FAULTS[fault](said)
        return frozenset(said)

    async def close(self) -> None:
        """It finishes what it was given, and ends."""
        self._is_closed = True
        self._hang_up()
        for process in self._processes:
            await _end(process)
        self._processes = []

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None


class Line(asyncio.Protocol):
    """The socket between us: a question, its answer, the next question."""

    def __init__(self) -> None:
        self._arrived = b""
        self._answer: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: Any) -> None:
        # uvloop's is one in all but name.
        self._transport: asyncio.Transport = transport

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def ask(self, question: object) -> asyncio.Future[Answer]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(framed(question))
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        content = self._arrived[LENGTH.size :]
        if content and len(content) == LENGTH.unpack(self._arrived[: LENGTH.size])[0]:
            self._arrived = b""
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(read(content))

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(StoreUnavailable("the process that writes beats has ended"))

    def close(self) -> None:
        self._transport.close()


def _start(path: Path, lock: IO[str] | None) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    program = (sys.executable, "-m", writer_process.__name__)
    inherited = (theirs.fileno(), *([] if lock is None else [lock.fileno()]))
    with theirs:
        process = subprocess.Popen(
            (*program, str(theirs.fileno()), str(path)),
            stdin=subprocess.DEVNULL,
            pass_fds=inherited,
            # Ctrl-C in a terminal is for the collector.
            start_new_session=True,
        )
    return process, ours


async def _end(process: subprocess.Popen[bytes]) -> None:
    ending = asyncio.create_task(asyncio.to_thread(process.wait))
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            await asyncio.shield(ending)
    except TimeoutError:
        process.kill()
        await ending
