"""HTTP as uvicorn speaks it, but for heartbeats: those are let in as soon as they are read.

A request object, a task and a chain of layers cost several times what a beat does. Only a beat that
nothing stands in the way of goes this way. Every other one, and every other request, is uvicorn's:
so what is refused, and how, is said in one place.
"""

from __future__ import annotations

from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from collector.api import admission
from collector.api.connection import BoundedProtocol
from collector.api.envelope import DEFAULT_HEADERS, fresh_identity, is_logged, log_request
from collector.api.heads import MAX_BEAT_HEAD_BYTES, Head, Heads
from collector.api.parts import ARRIVED_AT
from collector.api.problems import problem
from collector.api.workers import HEARTBEAT, accepted
from collector.logs import agent, caller, refusal, request_id

if TYPE_CHECKING:
    from collector.api.admission import Admitted
    from collector.api.parts import Parts
    from collector.errors import CollectorError

Pairs = tuple[tuple[bytes, bytes], ...]

_BEGINNING: Final = f"POST {HEARTBEAT} ".encode()
_END: Final = b"\r\n\r\n"
_JSON: Final[Pairs] = ((b"content-type", b"application/json"),)
_heads = Heads()


class Protocol(BoundedProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A beat of which the rest is still to come.
        self._half: Half | None = None
        # The stamp of a beat that is handed to uvicorn late.
        self._arrived_at: int | None = None
        # When the newest beat was answered.
        self._resting_since = 0.0

    def data_received(self, data: bytes) -> None:
        if not (self._takes(data) if self._half is None else self._goes_on(self._half, data)):
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._parts is not None:
            # A beat that was held before keeps the stamp of its first byte.
            stamp, self._arrived_at = self._arrived_at, None
            self.scope["state"][ARRIVED_AT] = stamp or self._parts.clock.now()

    def timeout_keep_alive_handler(self) -> None:
        # Beats leave the timer as it was: a new one each time costs more than most of their steps.
        resting = self.loop.time() - self._resting_since
        if self.cycle.response_complete and resting >= self.timeout_keep_alive:
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                max(1, self.timeout_keep_alive - resting), self.timeout_keep_alive_handler
            )

    def shutdown(self) -> None:
        # One that is half read is answered yet: uvicorn waits for what it knows of.
        self._leave_to_uvicorn()
        super().shutdown()

    def _takes(self, data: bytes) -> bool:
        """Whether this is one beat that nothing stands in the way of, or may become one."""
        parts = self._parts
        if parts is None or not parts.takes_beats_at_once:
            return False
        if not (data.startswith(_BEGINNING) and self._is_free()):
            return False
        # Before anything else, so that nothing slow makes a worker look dead.
        stamp = parts.clock.now()
        body_at = data.find(_END, 0, MAX_BEAT_HEAD_BYTES) + len(_END)
        head = _heads.read(data[:body_at]) if body_at >= len(_END) else None
        if head is None:
            return False
        missing = body_at + head.length - len(data)
        if missing > 0:
            return self._holds(parts, Half(head, stamp, bytearray(data), missing))
        return missing == 0 and self._enter(parts, head, stamp, data[body_at:])

    def _holds(self, parts: Parts, half: Half) -> bool:
        """Wait for the rest, unless there is something to say already."""
        head = half.head
        if not admission.is_expected(parts, head.key, head.length, now=half.stamp):
            return False
        self._unset_keepalive_if_required()
        self._half = half
        self._owes_since = None
        self._expect_more()
        return True

    def _goes_on(self, half: Half, data: bytes) -> bool:
        half.read += data
        half.missing -= len(data)
        if half.missing > 0:
            return True
        assert self._parts is not None
        body = bytes(half.read[-half.head.length :])
        if half.missing == 0 and self._enter(self._parts, half.head, half.stamp, body):
            self._half = None
        else:
            self._leave_to_uvicorn()
        return True

    def _leave_to_uvicorn(self) -> None:
        """Tell it what it was not told yet, if there is anything."""
        half, self._half = self._half, None
        if half is not None:
            self._arrived_at = half.stamp
            self._take_now(bytes(half.read))

    def _owes(self) -> bool:
        return self._half is not None or super()._owes()

    def _end_late(self) -> None:
        # One that is half read becomes a request of uvicorn's, which then ends it.
        self._leave_to_uvicorn()
        super()._end_late()

    def _is_free(self) -> bool:
        return (
            not (self._is_within_a_request or self._unparsed or self._refusal)
            # Answers leave in the order of their requests, and only to those who read them.
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
        )

    def _enter(self, parts: Parts, head: Head, stamp: int, body: bytes) -> bool:
        waiting: Any = Waiting(head.identity or fresh_identity(), stamp)
        answer = partial(self._answer, parts, waiting)
        admitted = admission.at_once(parts, head.key, stamp, body, answer)
        if admitted is None:
            return False
        _heads.remember(head)
        waiting.admitted = admitted
        self.cycle = waiting
        return True

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
                copy_context().run(self._log_answer, waiting, status, error)
        finally:
            waiting.response_complete = True
            self._rest()

    def _log_answer(self, waiting: Waiting, status: int, error: CollectorError | None) -> None:
        request_id.set(waiting.identity.decode())
        caller.set(waiting.admitted.principal.owner)
        refusal.set(error)
        agent.set(waiting.admitted.agent_id)
        log_request("POST", HEARTBEAT, status, self.client)

    def _rest(self) -> None:
        """Nothing is under way any more; uvicorn begins what has come meanwhile."""
        self._resting_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.on_response_complete()
        else:
            # Nothing else came meanwhile: that would have ended the timer.
            self.server_state.total_requests += 1

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
    lines = [b"%s: %s\r\n" % pair for pair in (*headers, *DEFAULT_HEADERS)]
    return b"".join((STATUS_LINE[status], *lines))


def _refusal(error: CollectorError) -> tuple[int, Pairs, bytes]:
    """What kept it from its commit, in the words of the one translator."""
    answer = problem(error)
    headers = tuple(pair for pair in answer.raw_headers if pair[0] != b"content-length")
    return answer.status_code, headers, bytes(answer.body)


@dataclass(slots=True)
class Half:
    """A beat whose head is here, and of its body so far all but `missing` bytes."""

    head: Head
    stamp: int
    read: bytearray
    missing: int


class Waiting:
    """Stands where uvicorn has a request under way: a beat that waits for its commit."""

    __slots__ = (
        "admitted",
        "disconnected",
        "identity",
        "keep_alive",
        "response_complete",
        "stamp",
    )

    admitted: Admitted

    def __init__(self, identity: bytes, stamp: int) -> None:
        self.identity = identity
        self.stamp = stamp
        self.response_complete = False
        self.disconnected = False
        # uvicorn takes it away when it is asked to stop.
        self.keep_alive = True

    @property
    def message_event(self) -> Waiting:
        """uvicorn sets this event when a body arrives. A beat is read whole: nothing waits."""
        return self

    def set(self) -> None:
        """Nothing to do."""
