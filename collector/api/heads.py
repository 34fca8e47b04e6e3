"""What the head of a heartbeat says, read once: a worker sends the same one with every beat."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final, NamedTuple

import httptools

from collector import keys
from collector.api import auth
from collector.api.envelope import own_identity
from collector.api.workers import HEARTBEAT
from collector.errors import Unauthenticated
from contract.vocabulary import MAX_HEADERS

# A few hundred bytes each. A fleet has one for each key, producer and length of body.
MOST = 32_768
# A beat's is some 300 bytes long; with a longer one there is something else about it.
MAX_BEAT_HEAD_BYTES = 8192
_URL: Final = HEARTBEAT.encode()


class Head(NamedTuple):
    """The head of a beat that is framed by its length and keeps the connection open."""

    # The head is known by its digest, because it has a key in it.
    digest: bytes
    # The digest of the key.
    key: bytes
    length: int
    # The caller's own, if it sent one.
    identity: bytes | None


class Heads:
    """Heads of beats that were let in before."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[bytes, Head] = OrderedDict()

    def read(self, text: bytes) -> Head | None:
        """What this head says; None if it is not a beat's, or there is more to say about it."""
        digest = hashlib.sha256(text).digest()
        return self._known.get(digest) or _read(text, digest)

    def remember(self, head: Head) -> None:
        """The next beat has the same one, unless an id of its own is in it."""
        if head.digest in self._known or head.identity is not None:
            return
        if len(self._known) >= self._most:
            self._known.popitem(last=False)
        self._known[head.digest] = head


def _read(text: bytes, digest: bytes) -> Head | None:
    told = _Told()
    parser = httptools.HttpRequestParser(told)
    try:
        parser.feed_data(text)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    length = told.length()
    if (
        told.url != _URL
        or not told.ends_the_head
        or not length
        or len(told.headers) > MAX_HEADERS
        or parser.get_method() != b"POST"
        or parser.get_http_version() != "1.1"
        or not parser.should_keep_alive()
        or parser.should_upgrade()
    ):
        return None
    try:
        key = keys.digest(auth.bearer(told.headers))
    except Unauthenticated:
        return None
    return Head(digest, key, length, own_identity(told.headers))


class _Told:
    """What the parser tells, as uvicorn is told it."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.ends_the_head = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.ends_the_head = True

    def on_body(self, _body: bytes) -> None:
        # Then the head was over before.
        self.ends_the_head = False

    def length(self) -> int:
        """The length of the body; 0 if something else says where it ends, or whether it comes."""
        names = [name for name, _ in self.headers]
        if b"transfer-encoding" in names or b"expect" in names:
            return 0
        lengths = [int(value) for name, value in self.headers if name == b"content-length"]
        return lengths[0] if len(lengths) == 1 else 0
