"""A stretch of network to a server, on which everything may get lost from some moment on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Passes on what both sides say while `passes` is set, and keeps it otherwise.

    No connection ends by itself meanwhile: that is how lost packets look.
    """

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._tasks: set[asyncio.Task[None]] = set()
        self.passes = asyncio.Event()
        self.passes.set()
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def before(cls, host: str, port: int) -> AsyncIterator[Relay]:
        relay = cls(host, port)
        server = await asyncio.start_server(relay._serve, "127.0.0.1", 0)
        relay.port = server.sockets[0].getsockname()[1]
        try:
            yield relay
        finally:
            server.close()
            for task in relay._tasks:
                task.cancel()
            await asyncio.gather(*relay._tasks, return_exceptions=True)
            # Transports close in the turn after.
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            await self.passes.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._upstream)
            ends.append(far_writer)
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        except asyncio.CancelledError:
            # The relay ends, and nothing else is to be told.
            pass
        finally:
            for each in ends:
                each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(65_536):
                await self.passes.wait()
                writer.write(some)
                await writer.drain()
        writer.close()
