"""Our end of the process that makes large documents."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from typing import Any

from collector import reader_process
from collector.documents import Document, Facts, Question
from collector.errors import StoreUnavailable, Unstorable
from collector.reader_process import ASKED, FACTS, HEAD, PIECE, framed, packed, unpacked
from collector.settings import variable

# Past the bound of a statement: a process that says nothing for so long hangs.
SILENT_SECONDS = 12
_FAULTS = {fault.__name__: fault for fault in (StoreUnavailable, Unstorable)}


class Reader:
    """Starts the process when there is something to read, and again after it has died.

    Its caller has at most `reader_process.AT_ONCE` questions under way.
    """

    def __init__(self, store_url: str) -> None:
        self._store_url = store_url
        self._starting = asyncio.Lock()
        self._link: Link | None = None
        # The last process serves this link; the ones before it were killed.
        self._processes: list[subprocess.Popen[bytes]] = []

    async def ask(self, question: Question, *, now: int) -> Document:
        """The document, as the store had its workers at some moment after this call."""
        link = await self._opened()
        try:
            async with asyncio.timeout(SILENT_SECONDS) as bound:
                return await link.ask(question, now, bound)
        except TimeoutError:
            self._end()
            raise StoreUnavailable("the process that reads does not answer") from None

    def abandon(self) -> None:
        """End the process at once; whoever waits for it hears that it has ended."""
        if self._link is not None:
            self._link.abort()
        self._end()

    async def close(self) -> None:
        """End the process; nobody waits for what it still reads."""
        async with self._starting:
            self._end()
            for process in self._processes:
                await asyncio.to_thread(process.wait)
            self._processes = []

    async def _opened(self) -> Link:
        async with self._starting:
            if self._link is None or not self._link.is_open:
                self._end()
                ours = await asyncio.shield(asyncio.to_thread(self._start))
                loop = asyncio.get_running_loop()
                _, self._link = await loop.create_unix_connection(Link, sock=ours)
            return self._link

    def _end(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None
        self._processes = [each for each in self._processes if each.poll() is None]
        for process in self._processes:
            process.kill()

    def _start(self) -> socket.socket:
        """Start the process; return our end of the socket."""
        ours, theirs = socket.socketpair()
        # Without the working directory, where another package may have our name.
        program = (sys.executable, "-P", "-m", reader_process.__name__)
        try:
            with theirs:
                process = subprocess.Popen(
                    (*program, str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=os.environ | {variable("store_url"): self._store_url},
                    # Ctrl-C in a terminal is for the collector.
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise StoreUnavailable(f"the process that reads did not start: {error}") from error
        self._processes.append(process)
        return ours


class Link(asyncio.Protocol):
    """The socket: questions by their number, and the pieces that have come of each answer."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._asked: dict[int, Pending] = {}
        self._arrived = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one in all but name.
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    async def ask(self, question: Question, now: int, bound: asyncio.Timeout) -> Document:
        """The answer; each piece of it moves the bound."""
        # Frames have four bytes for it.
        number = next(self._numbers) % 2**32
        asked = self._asked[number] = Pending(bound)
        try:
            self._transport.write(framed(number, ASKED, packed((question.packed(), now))))
            return Document(now, asked.pieces, Facts(*await asked.ended))
        finally:
            del self._asked[number]

    def data_received(self, data: bytes) -> None:
        # A document of megabytes would else be read to its end in one turn of the loop.
        self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._read_on)
        self._arrived += data
        while len(self._arrived) >= HEAD.size:
            length, number, what = HEAD.unpack_from(self._arrived)
            end = HEAD.size + length
            if len(self._arrived) < end:
                return
            content = bytes(memoryview(self._arrived)[HEAD.size : end])
            del self._arrived[:end]
            # An answer that nobody waits for any more is passed over.
            if number in self._asked:
                self._asked[number].take(what, content)

    def _read_on(self) -> None:
        if self.is_open:
            self._transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        for asked in self._asked.values():
            asked.fail(StoreUnavailable("the process that reads has ended"))

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


class Pending:
    """A question that is being answered."""

    def __init__(self, bound: asyncio.Timeout) -> None:
        self._bound = bound
        self.pieces: list[bytes] = []
        self.ended: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()

    def take(self, what: int, content: bytes) -> None:
        if what == PIECE:
            self.pieces.append(content)
            self._bound.reschedule(self.ended.get_loop().time() + SILENT_SECONDS)
        elif what == FACTS:
            if not self.ended.done():
                self.ended.set_result(unpacked(content))
        else:
            name, detail = unpacked(content)
            self.fail(_FAULTS[name](detail) if name in _FAULTS else RuntimeError(detail))

    def fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
