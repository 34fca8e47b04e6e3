"""HTTP as uvicorn speaks it, but for heartbeats: those are let in as soon as they are read.

A request object, a task and a chain of layers cost several times what a beat does. Only a beat that
nothing stands in the way of goes this way. Every other one, and every other request, is uvicorn's:
so what is refused, and how, is said in one place.
"""

from __future__ import annotations

from contextvars import copy_context
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from collector.api.envelope import identity_of, is_logged, log_request
from collector.api.problems import problem
from collector.api.workers import HEARTBEAT, accepted, enter_at_once
from collector.logs import caller, request_id
from contract.vocabulary import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collector.api.parts import Parts
    from collector.errors import CollectorError
    from collector.values import Principal

Pairs = tuple[tuple[bytes, bytes], ...]

_URL: Final = HEARTBEAT.encode()
_JSON: Final[Pairs] = ((b"content-type", b"application/json"),)


class Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # What the app's lifespan gave; an app that is not the collector gives none.
        self._parts: Parts | None = self.app_state.get("parts")
        # What has arrived of a beat.
        self._body: bytes | None = None

    def on_headers_complete(self) -> None:
        if self._is_plain_beat():
            self._body = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._body is None:
            super().on_body(body)
            return
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            self._leave_to_uvicorn()

    def on_message_complete(self) -> None:
        if self._body is not None and self._enter(self._body):
            self._body = None
            return
        self._leave_to_uvicorn()
        super().on_message_complete()

    def shutdown(self) -> None:
        # One that is half read is answered yet: uvicorn waits for what it knows of.
        self._leave_to_uvicorn()
        super().shutdown()

    def _is_plain_beat(self) -> bool:
        parser = self.parser
        return (
            self.url == _URL
            and self._parts is not None
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            # Answers leave in the order of their requests, and only to those who read them.
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
        )

    def _enter(self, body: bytes) -> bool:
        parts = self._parts
        if parts is None:
            return False
        waiting: Any = Waiting(identity_of(self.headers))
        entered = enter_at_once(parts, self.headers, body, partial(self._answer, parts, waiting))
        if entered is None:
            return False
        waiting.principal, waiting.stamp = entered
        self.cycle = waiting
        return True

    def _leave_to_uvicorn(self) -> None:
        """Tell it what it was not told yet, if there is anything."""
        body, self._body = self._body, None
        if body is None:
            return
        super().on_headers_complete()
        if body:
            super().on_body(body)

    def _answer(self, parts: Parts, waiting: Waiting, error: CollectorError | None) -> None:
        if error is None:
            status, headers, body = 202, _JSON, accepted(waiting.stamp)
        else:
            parts.metrics.beats.labels(error.code).inc()
            status, headers, body = _refusal(error)
        try:
            self._write(waiting, status, headers, body)
            if is_logged(status):
                # Apart: what the caller of this does next is not on behalf of this beat.
                copy_context().run(_log_answer, waiting, status)
        finally:
            waiting.response_complete = True
            self.on_response_complete()

    def _write(self, waiting: Waiting, status: int, headers: Pairs, body: bytes) -> None:
        """Head and body at once: written apart, each would be a system call and wake the reader."""
        if waiting.disconnected or self.transport.is_closing():
            return
        closing = () if waiting.keep_alive else ((b"connection", b"close"),)
        head = _head(status, (*self.server_state.default_headers, *headers, *closing))
        ending = b"%scontent-length: %d\r\nx-request-id: %s\r\n\r\n%s"
        self.transport.write(ending % (head, len(body), waiting.identity, body))
        if not waiting.keep_alive:
            self.transport.close()


@lru_cache(maxsize=8)
def _head(status: int, headers: Pairs) -> bytes:
    """The same for all answers of a second: uvicorn's own headers have the time."""
    return b"".join((STATUS_LINE[status], *[b"%s: %s\r\n" % pair for pair in headers]))


def _log_answer(waiting: Waiting, status: int) -> None:
    request_id.set(waiting.identity.decode())
    caller.set((waiting.principal.tenant_id, waiting.principal.key_id))
    log_request("POST", HEARTBEAT, status)


def _refusal(error: CollectorError) -> tuple[int, Pairs, bytes]:
    """What kept it from its commit, in the words of the one translator."""
    answer = problem(error)
    headers = tuple(pair for pair in answer.raw_headers if pair[0] != b"content-length")
    return answer.status_code, headers, bytes(answer.body)


class Waiting:
    """Stands where uvicorn has a request under way: a beat that waits for its commit."""

    __slots__ = (
        *("disconnected", "identity", "keep_alive", "principal", "response_complete", "stamp"),
    )

    principal: Principal
    stamp: int

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.response_complete = False
        self.disconnected = False
        # uvicorn takes it away when it is asked to stop.
        self.keep_alive = True

    @property
    def message_event(self) -> Waiting:
        """Whom uvicorn tells that there is something to receive: nobody waits for that."""
        return self

    def set(self) -> None:
        """Nothing to do."""
