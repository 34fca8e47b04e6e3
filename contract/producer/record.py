"""What became of the beats: for the host to read, and for its log, in few words."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from contract.producer import log
from contract.producer.clock import Clock
from contract.vocabulary import Status

# The same trouble is told again after this long, however often it comes and goes.
QUIET_SECONDS = 300.0
# So many failures in a row are worth an alert.
ALERT_AFTER = 3
FAILURES_KEPT = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """One beat that was not accepted."""

    at: float
    error: str
    consecutive_failures: int


@dataclass(frozen=True, slots=True)
class State:
    """How a worker's beats fare. Times are epoch seconds by the host's own clock."""

    agent_id: str
    status: Status
    active_sessions: int
    is_beating: bool
    last_accepted_at: float | None
    consecutive_failures: int
    last_error: str | None
    clock_drift_seconds: float | None
    failures: tuple[Failure, ...]


class Record:
    """Successes and failures as they come; each method runs under the worker's lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.last_accepted_at: float | None = None
        self.consecutive_failures = 0
        self.clock_drift_seconds: float | None = None
        self.failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)

    @property
    def last_error(self) -> str | None:
        return self.failures[-1].error if self.failures else None

    @property
    def calls_for_alert(self) -> bool:
        return self.consecutive_failures == ALERT_AFTER

    def accept(self, sent_at: float, server_time: float | None) -> bool:
        """A beat was accepted; whether an alert ends with it."""
        self.last_accepted_at = answered_at = self._clock.now()
        if server_time is not None:
            # The server stamped it somewhere between the sending and the answer.
            self.clock_drift_seconds = round(server_time - (sent_at + answered_at) / 2, 3)
        ends_alert = self.consecutive_failures >= ALERT_AFTER
        self.consecutive_failures = 0
        return ends_alert

    def fail(self, error: str) -> None:
        self.consecutive_failures += 1
        self.failures.append(Failure(self._clock.now(), error, self.consecutive_failures))


class Voice:
    """Speaks to the host's log: once when something goes wrong, once when it is over."""

    def __init__(self, agent_id: str, clock: Clock) -> None:
        self._agent_id = agent_id
        self._clock = clock
        self._told_at: dict[str, float] = {}
        self._open: set[str] = set()

    def warn(self, kind: str, text: str) -> None:
        """`kind` is told once until `recover`, and not again soon after that."""
        if kind in self._open:
            return
        now = self._clock.monotonic()
        if now - self._told_at.get(kind, -QUIET_SECONDS) >= QUIET_SECONDS:
            self._told_at[kind] = now
            self._open.add(kind)
            log.warn("worker %s: %s", self._agent_id, text)

    def recover(self, text: str, *kinds: str) -> None:
        """Say that what was told is over; of `kinds`, or of everything."""
        over = self._open.intersection(kinds) if kinds else set(self._open)
        if over:
            self._open -= over
            # As loud as the trouble was: who saw the one should see the other.
            log.warn("worker %s: %s", self._agent_id, text)
