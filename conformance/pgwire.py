"""One SQL command over PostgreSQL's wire protocol, so that a test server needs no driver.

Trust authentication, the loopback address, a simple query: nothing else is spoken.
"""

import socket
import struct
from collections.abc import Iterator
from io import BufferedRWPair

PROTOCOL = struct.pack("!i", 196608)  # 3.0


class QueryError(Exception):
    """The server refused; its sqlstate names the reason in any language."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate = sqlstate


def query(port: int, sql: str, database: str = "postgres", timeout_seconds: float = 60) -> str:
    """Run sql; its rows come back as lines, with a bar between columns and nothing for a null."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout_seconds) as connection,
        connection.makefile("rwb") as stream,
    ):
        _send(stream, b"", PROTOCOL + _startup_settings(database))
        _rows(stream)
        _send(stream, b"Q", _text(sql))
        rows = _rows(stream)
        _send(stream, b"X", b"")
        return "\n".join(rows)


def _startup_settings(database: str) -> bytes:
    settings = {"user": "postgres", "database": database, "client_encoding": "UTF8"}
    return b"".join(_text(name) + _text(value) for name, value in settings.items()) + b"\0"


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _send(stream: BufferedRWPair, kind: bytes, body: bytes) -> None:
    stream.write(kind + struct.pack("!i", len(body) + 4) + body)
    stream.flush()


def _rows(stream: BufferedRWPair) -> list[str]:
    """Read until the server is ready for a query; the first error ends the conversation."""
    rows = []
    for kind, body in _messages(stream):
        if kind == b"E":
            raise _error(body)
        if kind == b"R" and body != bytes(4):
            raise QueryError("28000", "the server wants a password; only trust is spoken here")
        if kind == b"D":
            rows.append("|".join(_columns(body)))
    return rows


def _messages(stream: BufferedRWPair) -> Iterator[tuple[bytes, bytes]]:
    while (kind := _read(stream, 1)) != b"Z":
        yield kind, _body(stream)
    _body(stream)


def _body(stream: BufferedRWPair) -> bytes:
    (length,) = struct.unpack("!i", _read(stream, 4))
    return _read(stream, length - 4)


def _read(stream: BufferedRWPair, size: int) -> bytes:
    received = stream.read(size)
    if len(received) < size:
        raise ConnectionError("the server closed the connection")
    return received


def _columns(body: bytes) -> Iterator[str]:
    start = 2
    while start < len(body):
        (size,) = struct.unpack_from("!i", body, start)
        start += 4
        yield body[start : start + max(size, 0)].decode()  # A null has size -1.
        start += max(size, 0)


def _error(body: bytes) -> QueryError:
    fields = {field[:1]: field[1:].decode(errors="replace") for field in body.split(b"\0")}
    return QueryError(fields[b"C"], fields[b"M"])
