"""Requests as bytes on a connection: the suite decides which of them leave together.

A server may read a body that comes with its head in another way than one that comes after it. An
HTTP client cuts its requests in one way only, so it never sees the other.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from conformance.answers import Answer
from conformance.expect import Breach

END = b"\r\n\r\n"
# After each segment, so that the server reads it before the next one comes.
PAUSE_SECONDS = 0.01
ANSWER_SECONDS = 20
# Longer than any head or body of an answer to a heartbeat.
READ_LIMIT = 1 << 20
CHUNK = 1000
# A client that does not read asks for this buffer; the system gives it the smallest that it has.
SMALLEST_BUFFER = 1024
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Framing:
    """One way to cut a request into segments."""

    name: str
    cut: Callable[[bytes, bytes], list[bytes]]


def _in_pieces(head: bytes, content: bytes) -> list[bytes]:
    """Within the head, within its end, and on both sides of the body's ends."""
    whole, body_at = head + content, len(head)
    places = (body_at // 2, body_at - 2, body_at + 1, len(whole) - 1)
    cuts = sorted({place for place in places if 0 < place < len(whole)})
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


FRAMINGS = (
    Framing("head and body together", lambda head, content: [head + content]),
    Framing("the head first", lambda head, content: [head, content]),
    Framing("in pieces", _in_pieces),
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a target listens, and how many connections to it may be open at once."""

    host: str
    port: int
    # The Host header says this.
    authority: str
    # This stands before every path.
    prefix: str
    context: ssl.SSLContext | None
    turns: asyncio.Semaphore = field(repr=False)

    @classmethod
    def of(cls, url: str, *, most: int) -> Address:
        parts = urlsplit(url)
        assert parts.hostname is not None
        return cls(
            parts.hostname,
            parts.port or DEFAULT_PORTS[parts.scheme],
            parts.netloc.rpartition("@")[2],
            parts.path.rstrip("/"),
            # Trusts whom the suite's HTTP client trusts.
            httpx2.create_ssl_context() if parts.scheme == "https" else None,
            asyncio.Semaphore(most),
        )

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Line]:
        """A connection of one's own."""
        async with self.turns:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    reader, writer = await asyncio.open_connection(
                        self.host, self.port, ssl=self.context, limit=READ_LIMIT
                    )
            except OSError as error:
                raise Breach("a connection", f"{type(error).__name__}: {error}") from error
            # Each segment leaves as it is written.
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                yield Line(reader, writer)
            finally:
                writer.close()
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(1):
                        await writer.wait_closed()

    @asynccontextmanager
    async def unread(self, request: bytes) -> AsyncIterator[None]:
        """A connection whose client asks and never reads what it is answered."""
        assert self.context is None, "a server that was launched for the suite, without TLS"
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as client:
            client.setblocking(False)
            # Before it connects: then the answer stays where it is made.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALLEST_BUFFER)
            async with asyncio.timeout(ANSWER_SECONDS):
                await loop.sock_connect(client, (self.host, self.port))
                await loop.sock_sendall(client, request)
            yield

    def head(self, method: str, path: str, headers: Iterable[tuple[str, str]]) -> bytes:
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {self.authority}"]
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join(lines).encode("latin-1") + END


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *segments: bytes) -> None:
        """Each leaves by itself, and gets to the server before the next one."""
        for nth, segment in enumerate(segments):
            if nth:
                await asyncio.sleep(PAUSE_SECONDS)
            self._writer.write(segment)
            await self._writer.drain()

    async def exchange(self, request: str, *segments: bytes) -> Answer:
        """Send one request and return its answer, which may come before all of it is sent."""
        sending = asyncio.create_task(self.send(*segments))
        try:
            return await self.answer(request)
        finally:
            sending.cancel()
            # A server that has answered need not read on.
            with suppress(OSError, asyncio.CancelledError):
                await sending

    async def answer(self, request: str) -> Answer:
        """The next one, read to its end; an interim one (100) is passed over."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status, headers = await self._head()
                while status < 200:
                    status, headers = await self._head()
                content = await self._body(status, headers)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            seen = f"{type(error).__name__}: {error}"
            raise Breach(f"{request}: an HTTP answer", seen) from error
        return Answer(request, status, httpx2.Headers(headers), content.decode("utf-8", "replace"))

    async def is_ended(self) -> bool:
        """Whether the server ends the connection, with nothing more to say."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._reader.read(1) == b""
        return False

    async def _head(self) -> tuple[int, list[tuple[str, str]]]:
        text = (await self._reader.readuntil(END)).decode("latin-1")
        first, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
        pairs = [line.partition(":") for line in lines]
        return int(first.split(" ", 2)[1]), [(name, value.strip()) for name, _, value in pairs]

    async def _body(self, status: int, headers: list[tuple[str, str]]) -> bytes:
        told = {name.lower(): value for name, value in headers}
        if status in (204, 304):
            return b""
        if told.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunks()
        if "content-length" in told:
            return await self._reader.readexactly(int(told["content-length"]))
        return await self._reader.read()

    async def _chunks(self) -> bytes:
        found = b""
        while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            found += (await self._reader.readexactly(size + 2))[:-2]
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            """A trailer, which nobody reads."""
        return found


def chunks(content: bytes) -> list[bytes]:
    """The parts of a body whose length is not announced."""
    return [content[start : start + CHUNK] for start in range(0, len(content), CHUNK)]


def chunked(content: bytes) -> bytes:
    """The same as they stand on the wire."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*chunks(content), b""))


def is_proxied(url: str) -> bool:
    """Whether the environment sends requests to this address through a proxy, which cuts anew."""
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")
