"""Anonymous connections that send far more than anybody asks for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from benchmarks.besieged import Besieged

ASK = b"GET /a HTTP/1.1\r\n\r\n"
HEADER = b"a: b\r\n"
FIRST_LINE = b"GET /a HTTP/1.1\r\n"
BLOCK_BYTES = 65_536
# The others' beats begin before the flood and end after it.
AROUND_SECONDS = 2


@dataclass
class Poured:
    """How much one connection could send, and what it was answered."""

    sent: int = 0
    beginning: bytes = b""
    is_ended: bool = False

    @property
    def status(self) -> int:
        """The first answer's status; 0 where no answer came."""
        return int(self.beginning[9:12] or 0)


async def pipeline(on: Besieged) -> None:
    """Requests without an end on one connection and then on two, whose answers are read."""
    scale = on.scale
    async with on.others(2 * scale.flood_seconds + AROUND_SECONDS):
        for sizes in (
            [scale.pipelined_on_one_bytes],
            [scale.pipelined_bytes // 2, scale.pipelined_bytes // 2],
        ):
            poured = await asyncio.gather(*(pour(on, b"", ASK, size) for size in sizes))
            sent = sum(each.sent for each in poured)
            on.tried += sent // len(ASK)
            on.say(f"{sent / 1e6:.1f} MB of requests on {len(sizes)}")
            on.fault(
                "answers",
                "some connections were answered otherwise than with 404",
                sum(each.status not in (0, 404) for each in poured),
            )


async def heads(on: Besieged) -> None:
    """A head of many headers, and one with a long URL, neither of which ends."""
    scale = on.scale
    floods = {
        "tiny headers": (FIRST_LINE, HEADER, scale.headers_bytes),
        "a URL": (b"GET /", b"a" * 1024, scale.url_bytes),
    }
    async with on.others(2 * (scale.flood_seconds + scale.slack_seconds)):
        for name, (opening, piece, size) in floods.items():
            poured = await pour(on, opening, piece, size)
            on.tried += 1
            on.say(f"{poured.sent / 1e6:.1f} MB of {name}: {poured.status or 'no answer'}")
            if poured.status != 431:
                on.fault("answers", f"{name}: {poured.status or 'none'} instead of 431")
            if not poured.is_ended:
                on.fault("ends", f"{name}: the connection was not ended")


async def pour(on: Besieged, opening: bytes, piece: bytes, size: int) -> Poured:
    """Send so much, as long as it is taken and the collector's memory is within its limit."""
    found = Poured()
    block = piece * (BLOCK_BYTES // len(piece))
    loop = asyncio.get_running_loop()
    async with _connected(on) as connection:
        reading = asyncio.create_task(_read(connection, found))
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(on.scale.flood_seconds):
                await loop.sock_sendall(connection, opening)
                while found.sent < size and not on.peak.is_too_high:
                    await loop.sock_sendall(connection, block)
                    found.sent += len(block)
        if not on.peak.is_too_high:
            # A flood that sends ahead without an end waits for no end either.
            await asyncio.wait([reading], timeout=on.scale.slack_seconds if opening else 0)
        reading.cancel()
        # The loop must not watch a socket that is closed.
        await asyncio.gather(reading, return_exceptions=True)
    return found


async def _read(connection: socket.socket, found: Poured) -> None:
    """All that comes. What came before a reset can be read after it."""
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while some := await loop.sock_recv(connection, BLOCK_BYTES):
            found.beginning = (found.beginning + some)[:16] if not found.status else found.beginning
    found.is_ended = True


@asynccontextmanager
async def _connected(on: Besieged) -> AsyncIterator[socket.socket]:
    with socket.socket() as connection:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, on.process.address)
        yield connection
