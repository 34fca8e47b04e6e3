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
from collector.store.sqlite_batches import BUSY_SECONDS
from collector.store.writer_process import DEFECT, LENGTH, Reply, framed, unframed
from collector.values import Beat

# A batch may wait for others, and then takes some time itself.
REPLY_SECONDS = BUSY_SECONDS + 5

_FAULTS = {fault.__name__: fault for fault in (StoreUnavailable, Unstorable)}


class Writer:
    """Starts the process when there is something to write, and again after it has died.

    One call at a time.
    """

    def __init__(self, path: Path, lock: Callable[[], IO[str] | None]) -> None:
        self._path = path
        # Whom the store is locked for is not gone before this process is.
        self._lock = lock
        self._link: Link | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    async def open(self) -> None:
        """Have it ready, unless it is."""
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if self._link is not None and self._link.is_open:
            return
        # Who has died is no longer waited for.
        self._processes = [each for each in self._processes if each.poll() is None]
        ours = await asyncio.shield(asyncio.to_thread(self._start))
        _, self._link = await asyncio.get_running_loop().create_unix_connection(Link, sock=ours)
        await self._reply_to(None)

    async def commit(self, beats: Sequence[Beat], now: int, gone: int) -> frozenset[str]:
        """As `Store.commit`. An empty batch only shows that one would be committed."""
        await self.open()
        fault, said = await self._reply_to((list(map(tuple, beats)), now, gone))
        if fault == DEFECT:
            raise RuntimeError(said)
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

    async def _reply_to(self, question: object) -> Reply:
        """To the start, if that is all there is."""
        assert self._link is not None
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                return await self._link.ask(question)
        except TimeoutError:
            # It may hold SQLite's lock, and would for ever.
            self._processes[-1].kill()
            raise StoreUnavailable("the process that writes beats does not answer") from None
        finally:
            # Who went away must not leave a reply to whoever comes next.
            if not self._link.is_answered:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    def _start(self) -> socket.socket:
        """Start the process; return our end of the socket."""
        ours, theirs = socket.socketpair()
        lock = self._lock()
        # Without the working directory, where another package may have our name.
        program = (sys.executable, "-P", "-m", writer_process.__name__)
        try:
            with theirs:
                process = subprocess.Popen(
                    (*program, str(theirs.fileno()), str(self._path)),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), *([] if lock is None else [lock.fileno()])),
                    # Ctrl-C in a terminal is for the collector.
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self._processes.append(process)
        return ours


class Link(asyncio.Protocol):
    """The socket between us: a question, its reply, the next question."""

    def __init__(self) -> None:
        self._arrived = b""
        self._reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        # uvloop's is one in all but name.
        self._transport: asyncio.Transport = transport

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    @property
    def is_answered(self) -> bool:
        return self._reply.done() and not self._reply.cancelled()

    def ask(self, question: object) -> asyncio.Future[Reply]:
        """None is for what it says unasked: that it is ready."""
        if question is not None:
            frame = framed(question)
            self._reply = asyncio.get_running_loop().create_future()
            self._transport.write(frame)
        return self._reply

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        content = self._arrived[LENGTH.size :]
        if content and len(content) == LENGTH.unpack(self._arrived[: LENGTH.size])[0]:
            self._arrived = b""
            if not self._reply.done():
                self._reply.set_result(unframed(content))

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._reply.done():
            self._reply.set_exception(StoreUnavailable("the process that writes beats has ended"))

    def close(self) -> None:
        self._transport.close()


async def _end(process: subprocess.Popen[bytes]) -> None:
    ending = asyncio.create_task(asyncio.to_thread(process.wait))
    try:
        async with asyncio.timeout(REPLY_SECONDS):
            await asyncio.shield(ending)
    except TimeoutError:
        process.kill()
        await ending
