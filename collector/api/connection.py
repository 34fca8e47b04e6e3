"""A connection with bounds: what it may send ahead, how large a head is, and how long it takes.

uvicorn keeps whatever a client sends. Here a head over its limit is refused, requests that wait for
earlier answers are few and the rest stays unread, and a request that is not whole in time is ended.
Nobody needs a key to meet these bounds, so they cost those who have one nothing.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from collector import keys
from collector.api import auth
from collector.api.envelope import DEFAULT_HEADERS, fresh_identity, refusal_facts
from collector.api.problems import problem
from collector.errors import (
    CollectorError,
    HeadTooLarge,
    MalformedRequest,
    RequestTimeout,
    Unauthenticated,
)
from collector.logs import agent, caller, request_id
from collector.settings import Settings
from contract.vocabulary import MAX_HEAD_BYTES, MAX_HEADERS

if TYPE_CHECKING:
    from collector.api.parts import Parts

# Requests that wait on one connection before it is read no further.
MAX_PIPELINED: Final = 8
# The parser is fed so much at a time: what it finds in one piece may go past that bound.
PIECE_BYTES: Final = 1024
# Descriptors that connections leave free, for the store, its files and the process that writes it.
RESERVED_DESCRIPTORS: Final = 64
# An app that is not the collector has no settings; this is its deadline.
REQUEST_SECONDS: Final = Settings().request_seconds
# A header takes this many bytes beside its name and value: colon, space, end of line.
_AROUND_HEADER: Final = 4
_log = logging.getLogger(__name__)


@cache
def most_connections() -> int:
    """How many connections fit below the process's limit of descriptors, with some in reserve."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, limit - RESERVED_DESCRIPTORS)


class Flow(FlowControl):
    """uvicorn reads on after each answer; this one does not while pieces wait to be parsed."""

    is_full = False

    def resume_reading(self) -> None:
        if not self.is_full:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """One connection, of which nothing grows without bound."""

    flow: Flow

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The app's lifespan provides the parts; another app provides none.
        self._parts: Parts | None = self.app_state.get("parts")
        self._seconds = self._parts.settings.request_seconds if self._parts else REQUEST_SECONDS
        self._is_within_a_request = False
        self._is_within_a_head = False
        self._head_bytes = 0
        # Bytes that were fed while the parser was within one head.
        self._fed_to_head = 0
        # These bytes were read and are not parsed yet.
        self._unparsed = bytearray()
        self._waits_for_turn = False
        # Since when the client owes us something, by the loop's clock.
        self._owes_since: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._refusal: CollectorError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport)
        if len(self.connections) > self._most():
            transport.abort()
        else:
            self._expect_more()

    def _most(self) -> int:
        """How many connections there may be of this kind; the store's pool has its own beside."""
        pool_size = self._parts.settings.pool_size if self._parts else 0
        return max(1, most_connections() - pool_size)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._unparsed.clear()
        if self._parts is None or not self._is_answering():
            super().connection_lost(exc)
        else:
            # To take down a stream costs as much as to begin one, and hundreds may end at once.
            self._parts.requests.call(partial(super().connection_lost, exc))

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        if self._unparsed or len(data) > PIECE_BYTES or not self._has_turn():
            self._unparsed += data
            self._parse_some()
        else:
            self._feed(data)
        self._expect_more()

    def _has_turn(self) -> bool:
        """Whether a request may begin in this turn of the loop; else we are called in another."""
        if self._is_within_a_request or self._parts is None:
            return True
        if self._waits_for_turn:
            return False
        if self._parts.requests.is_mine():
            return True
        self._waits_for_turn = True
        self._parts.requests.call(self._on_turn)
        return False

    def _on_turn(self) -> None:
        self._waits_for_turn = False
        if self._unparsed and self.parser is not None and self._is_parsing():
            self._feed(self._next_piece())
            self._go_on()

    def _take_now(self, data: bytes) -> None:
        """Parse this without waiting for a turn."""
        self._unparsed += data
        self._parse_some(at_once=True)
        self._expect_more()

    def _parse_some(self, *, at_once: bool = False) -> None:
        """Parse what was read, piece by piece, until enough requests wait."""
        while (
            self._unparsed
            and len(self.pipeline) < MAX_PIPELINED
            and self._is_parsing()
            and (at_once or self._has_turn())
        ):
            self._feed(self._next_piece())
        self.flow.is_full = bool(self._unparsed)
        if self.flow.is_full:
            self.flow.pause_reading()

    def _next_piece(self) -> bytes:
        piece = bytes(self._unparsed[:PIECE_BYTES])
        del self._unparsed[:PIECE_BYTES]
        return piece

    def _is_parsing(self) -> bool:
        return self._refusal is None and not self.transport.is_closing()

    def _feed(self, data: bytes) -> None:
        was_within_a_head = self._is_within_a_head
        super().data_received(data)
        if was_within_a_head and self._is_within_a_head and self._refusal is None:
            self._fed_to_head += len(data)
            if self._fed_to_head > MAX_HEAD_BYTES:
                self._refuse(_too_large_head())

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this when its parser stops, for a head of ours or for what is not HTTP."""
        if self._refusal is None:
            self._refuse(MalformedRequest(msg))

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._is_within_a_request = self._is_within_a_head = True
        self._head_bytes = self._fed_to_head = 0
        self._owes_since = None
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + _AROUND_HEADER)
        if len(self.headers) >= MAX_HEADERS:
            self._stop_parsing()
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_within_a_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_within_a_request = False
        super().on_message_complete()

    def _count_head(self, length: int) -> None:
        self._head_bytes += length
        if self._head_bytes > MAX_HEAD_BYTES:
            self._stop_parsing()

    def _stop_parsing(self) -> None:
        self._refuse(_too_large_head())
        raise httptools.HttpParserError("The head is too large.")

    # Answers.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refusal is not None:
            self._end_refused()
        elif self._unparsed:
            # In a turn of its own: this one is within an answer.
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.parser is not None and self._is_parsing():
            self._parse_some()
            if not self.flow.is_full:
                self.flow.resume_reading()
            self._expect_more()

    def _refuse(self, error: CollectorError) -> None:
        """Read no further; say why once all that was asked before is answered."""
        self._refusal = error
        self._unparsed.clear()
        self.flow.is_full = True
        self.flow.pause_reading()
        self._give_up_body()
        self._end_refused()

    def _give_up_body(self) -> None:
        """The rest of a body never comes: its app stops waiting, and its answer goes nowhere."""
        if not self._is_within_a_request or self._is_within_a_head:
            return
        if not (self.cycle.response_complete or self.cycle.response_started):
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()

    def _end_refused(self) -> None:
        """Answers leave in the order of their requests, so the refusal is the last."""
        assert self._refusal is not None
        if self.pipeline or self._is_answering() or self.transport.is_closing():
            return
        answer, identity = problem(self._refusal), fresh_identity()
        copy_context().run(self._log_refusal, self._refusal, answer.status_code, identity)
        headers = (
            *self.server_state.default_headers,
            *answer.raw_headers,
            *DEFAULT_HEADERS,
            (b"x-request-id", identity),
            (b"connection", b"close"),
        )
        lines = [b"%s: %s\r\n" % pair for pair in headers]
        self.transport.write(
            b"".join((STATUS_LINE[answer.status_code], *lines, b"\r\n", bytes(answer.body)))
        )
        self.transport.close()

    def _log_refusal(self, error: CollectorError, status: int, identity: bytes) -> None:
        """Apart, like the line of a beat: this connection's context may be another request's."""
        request_id.set(identity.decode())
        caller.set(self._owner())
        agent.set(None)
        extra = {"status": status, **refusal_facts(error, self.client)}
        _log.info("a request is refused %d", status, extra=extra)

    def _owner(self) -> tuple[str, str] | None:
        """Whose request is refused, if its head is whole and has a key that is known."""
        if self._parts is None or self._is_within_a_head or not self._is_within_a_request:
            return None
        try:
            key = keys.digest(auth.bearer(self.headers))
        except Unauthenticated:
            return None
        principal = self._parts.keyring.known(key, now=self._parts.clock.now())
        return None if principal is None else principal.owner

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # How long it takes.

    def _expect_more(self) -> None:
        """Keep in mind since when the client owes the rest of a request, or its first one."""
        if not self._owes():
            self._owes_since = None
        elif self._owes_since is None:
            self._owes_since = self.loop.time()
            if self._deadline is None:
                self._deadline = self.loop.call_later(self._seconds, self._on_deadline)

    def _owes(self) -> bool:
        """An idle connection has uvicorn's timer; one whose answer is under way owes nothing."""
        if self._is_within_a_request:
            return True
        return not self._is_answering() and self.timeout_keep_alive_task is None

    def _on_deadline(self) -> None:
        self._deadline = None
        if not self._owes():
            self._owes_since = None
        if self._owes_since is None or self.transport.is_closing():
            return
        left = self._owes_since + self._seconds - self.loop.time()
        if left <= 0 and self._refusal is None:
            self._end_late()
        elif left > 0:
            self._deadline = self.loop.call_later(left, self._on_deadline)

    def _end_late(self) -> None:
        """Whoever began a request hears why; where nothing was said, nothing is answered."""
        has_a_head = self._is_within_a_request and not self._is_within_a_head
        if not self._is_within_a_request or (has_a_head and self.cycle.response_started):
            self.transport.close()
        else:
            self._refuse(RequestTimeout(f"The request was not whole within {self._seconds} s."))


class FewProtocol(BoundedProtocol):
    """A connection of one of the few who ask for metrics at their own address.

    These use descriptors of the reserve, so that they are served at the limit too.
    """

    def _most(self) -> int:
        return RESERVED_DESCRIPTORS // 4


def _too_large_head() -> HeadTooLarge:
    return HeadTooLarge(
        f"The head of a request has at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers."
    )
