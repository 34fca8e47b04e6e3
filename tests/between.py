"""A stretch of bad network between a worker and its collector, and all that passes through it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker sent: the request line, its headers and its beat."""

    line: str
    headers: dict[str, str]
    beat: dict[str, Any]


@dataclass
class Between:
    """Listens where the collector seems to be, and does to each request what `mode` says.

    `pass` hands it on, `answer` gives `status` and `headers`, `silence` never answers, `drip`
    answers with one header byte after another, `cut` closes in the middle of the answer, `hang up`
    passes it on and closes the connection afterwards without having said so, `stall` stops in the
    middle of the answer's body, `raw` answers with just these bytes, the head first, and closes,
    `drop` passes it on and then breaks the connection, with TLS without its goodbye.
    """

    upstream: str
    mode: str = "pass"
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    raw: bytes = b""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    given_up: int = 0
    tls: ssl.SSLContext | None = None
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @classmethod
    @asynccontextmanager
    async def before(cls, upstream: str, **settings: Any) -> AsyncIterator[Between]:
        between = cls(upstream, **settings)
        await between.appear()
        try:
            yield between
        finally:
            await between.vanish()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def beats(self) -> list[dict[str, Any]]:
        return [request.beat for request in self.requests]

    async def is_asked(self) -> bool:
        return bool(self.requests)

    async def appear(self) -> None:
        """Listen, again on the same port once one was taken."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self.tls, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def vanish(self) -> None:
        """Gone, with every connection: the next one is refused."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._serve_one(reader, writer):
                pass
        self._writers.discard(writer)
        writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(HEAD_END)
        line, _, rest = head.decode("latin-1").partition("\r\n")
        headers = dict(row.split(": ", 1) for row in rest.strip().split("\r\n"))
        if line.startswith("CONNECT "):
            self.requests.append(Request(line, headers, {}))
            await self._tunnel(line.split()[1], reader, writer)
            return False
        content = await reader.readexactly(int(headers["Content-Length"]))
        self.requests.append(Request(line, headers, json.loads(content)))
        return await self._act(head, content, reader, writer)

    async def _act(
        self,
        head: bytes,
        content: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        match self.mode:
            case "pass" | "hang up":
                writer.write(await self._upstream(head, content))
            case "answer":
                writer.write(_answer(self.status, self.headers, self.body))
            case "silence":
                await reader.read()
                self.given_up += 1
            case "stall":
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{")
                await reader.read()
            case "raw":
                head, end, body = self.raw.partition(HEAD_END)
                writer.write(head + end)
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.write(body)
            case "drop":
                writer.write(await self._upstream(head, content))
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.transport.abort()
            case "drip":
                writer.write(b"HTTP/1.1 202 Accepted\r\nX-Drip: ")
                while not writer.is_closing():
                    writer.write(b".")
                    await writer.drain()
                    await asyncio.sleep(0.05)
            case "cut":
                writer.write(b"HTTP/1.1 20")
        await writer.drain()
        return self.mode in ("pass", "answer")

    async def _upstream(self, head: bytes, content: bytes) -> bytes:
        parts = urlsplit(self.upstream)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        line, _, rest = head.partition(b"\r\n")
        # What a proxy is asked for is a whole URL; the collector wants its path.
        method, target, version = line.split()
        path = urlsplit(target.decode()).path.encode()
        writer.write(b" ".join((method, path, version)) + b"\r\n" + rest + content)
        answered = await reader.readuntil(HEAD_END)
        length = next(
            int(row.split(b":")[1])
            for row in answered.lower().split(b"\r\n")
            if row.startswith(b"content-length")
        )
        answered += await reader.readexactly(length)
        writer.close()
        return answered

    async def _tunnel(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established" + HEAD_END)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
    writer.close()


def _answer(status: int, headers: dict[str, str], body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    rows = {"Content-Length": str(len(content)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in rows.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + content
