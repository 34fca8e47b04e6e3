"""A stretch of network before a server, which may lose every packet for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK = 65_536


class Stretch:
    """Listens on a free port, and hands on what comes while it is passable.

    What is sent meanwhile is not lost for good: it arrives when the stretch is passable again, as
    TCP sees to it. New connections are taken all the while, and hear nothing either.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self._there = (host, port)
        self._passable = asyncio.Event()
        self._passable.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def impassable(self) -> AsyncIterator[None]:
        self._passable.clear()
        try:
            yield
        finally:
            self._passable.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # At the end of the stretch: the server would tell of it as of a fault.
            with suppress(asyncio.CancelledError):
                await self._connect(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await self._passable.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._there)
            try:
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(self._carry(reader, far_writer))
                    ways.create_task(self._carry(far_reader, writer))
            finally:
                far_writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Whichever side ends takes the other with it."""
        with suppress(OSError):
            while some := await reader.read(CHUNK):
                await self._passable.wait()
                writer.write(some)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def stretch(host: str, port: int) -> AsyncIterator[Stretch]:
    """Before that server, until the block ends."""
    made = Stretch(host, port)
    server = await asyncio.start_server(made._serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in list(made._tasks):
            task.cancel()
        await asyncio.gather(*made._tasks, return_exceptions=True)
