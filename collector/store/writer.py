"""Our end of the process that writes beats to SQLite."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from collector.errors import StoreUnavailable, Unstorable
from collector.store import writer_process
from collector.store.writer_process import DEFECT, LENGTH, Reply, framed, unframed
from collector.values import Beat

# A machine under load takes long to start a process, and ending it would not make that faster.
START_SECONDS = 15
# The process gets this long to write its last batch when the store is closed.
END_SECONDS = 1.5

_FAULTS = {fault.__name__: fault for fault in (StoreUnavailable, Unstorable)}


class Writer:
    """Starts the process when there is something to write, and again after it has died.

    One call at a time. A caller that gives up, for the process hangs, ends it: it may hold SQLite's
    lock, and would for ever. Another one is started at once.
    """

    def __init__(self, path: Path, lock: Callable[[], IO[str] | None]) -> None:
        self._path = path
        # The process inherits the lock, so the store stays locked until it has ended too.
        self._lock = lock
        self._link: Link | None = None
        self._starting: asyncio.Task[None] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    async def open(self) -> None:
        """Have it ready, unless it is. A start goes on although somebody no longer waits for it."""
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if self._link is not None and self._link.is_open:
            return
        await asyncio.shield(self._starting or self._begin())
        if self._link is None:
            raise StoreUnavailable("the store is closed")

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
        """It finishes what it was given, and ends; one that does not in time is ended."""
        self._is_closed = True
        self._hang_up()
        if (starting := self._starting) is not None:
            await asyncio.wait([starting], timeout=END_SECONDS)
            starting.cancel()
        ending = asyncio.to_thread(_end, self._processes)
        self._processes = []
        await ending

    def abandon(self) -> None:
        """End it now, from any thread: an orphan that hangs would keep the store locked."""
        self._is_closed = True
        self._end_earlier()

    async def _reply_to(self, question: object) -> Reply:
        assert self._link is not None
        link = self._link
        try:
            return await link.ask(question)
        finally:
            # Who went away must not leave a reply to whoever comes next.
            if not link.is_answered:
                self._hang_up()
                self._end_earlier()
                if not self._is_closed:
                    self._begin()

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    def _end_earlier(self) -> None:
        for process in self._processes:
            # A process that has ended is reaped by this, too.
            if process.poll() is None:
                process.kill()

    def _begin(self) -> asyncio.Task[None]:
        self._starting = asyncio.create_task(self._start(), name="writer-start")
        # A failure that no caller waits for is no defect of ours: the next call starts anew.
        self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._starting

    async def _start(self) -> None:
        try:
            self._link = await self._connected()
            if self._is_closed:
                self._hang_up()
        finally:
            self._starting = None

    async def _connected(self) -> Link:
        self._end_earlier()
        self._processes = [each for each in self._processes if each.poll() is None]
        ours = await asyncio.to_thread(self._spawn)
        _, link = await asyncio.get_running_loop().create_unix_connection(Link, sock=ours)
        try:
            async with asyncio.timeout(START_SECONDS):
                await link.ask(None)
        except TimeoutError:
            self._end_earlier()
            raise StoreUnavailable("the process that writes beats does not start") from None
        finally:
            if not link.is_answered:
                link.close()
        return link

    def _spawn(self) -> socket.socket:
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
        if self._is_closed:
            process.kill()
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
            if self.is_open:
                self._transport.write(frame)
            else:
                self.connection_lost(None)
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


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + END_SECONDS
    for process in processes:
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
