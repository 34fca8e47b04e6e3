"""The thread that beats for one worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from contract.producer import log, trouble
from contract.producer.clock import Clock
from contract.producer.connection import Address, Answer, Connection
from contract.producer.description import Description
from contract.producer.liveness import Liveness
from contract.producer.load import Load
from contract.producer.record import Record, State, Voice
from contract.producer.schedule import NUDGE_SECONDS, until_next, until_retry
from contract.producer.vitals import Sampler
from contract.producer.wire import Patience
from contract.vocabulary import Status

ATTEMPT_SECONDS = 5.0
LEAVE_SECONDS = 1.0
# Of that second, what a beat in flight may take to come back, so that the leave follows it.
GRACE_SECONDS = 0.3

# In a fork's child: what was the parent's, kept so that nothing ever closes it a second time.
_parked: list[Pulse] = []

Alert = Callable[[State], object]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the host asked for: where to beat, how often, and whom to tell."""

    address: Address
    key: str
    interval: float | None
    on_failure: Alert | None
    on_recovery: Alert | None
    alive: Callable[[], object] | None
    loop: Any

    def leads_elsewhere(self, other: Terms) -> bool:
        """Whether what was said on those terms is not known where these lead to."""
        return (self.address, self.key) != (other.address, other.key)


class Pulse:
    """Beats from its start until it is told to leave; one attempt at a time."""

    def __init__(
        self,
        description: Description,
        load: Load,
        terms: Terms,
        clock: Clock,
        former: Pulse | None = None,
        is_known: bool = False,
    ) -> None:
        self._description = description
        self._load = load
        self._terms = terms
        self._clock = clock
        self._former = former
        self._record = Record(clock)
        self._voice = Voice(description.agent_id, clock)
        self._liveness = Liveness(terms.alive, terms.loop)
        self._sampler = Sampler()
        self._patience = Patience()
        self._connection = Connection(terms.address, terms.key, self._patience)
        # A condition's lock is re-entrant: a signal handler may open a session anywhere.
        self._turn = threading.Condition()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._due = self._clock.monotonic()
        self._began = self._due - NUDGE_SECONDS
        self._starts_at = self._due
        self._sent: Status | None = None
        # The collector may have heard of it: a goodbye is called for.
        self._is_known = is_known
        self._is_nudged = False
        self._is_leaving = False
        self._says_goodbye = True
        self._leaves_by = 0.0

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Once; without a thread or a descriptor to be had, the next call tries it again."""
        # Every session comes by: most of them find it running.
        if self._thread is not None or self._is_leaving:
            return
        try:
            with self._turn:
                now = self._clock.monotonic()
                if self._thread is not None or now < self._starts_at:
                    return
                self._starts_at = now + NUDGE_SECONDS
                self._thread = self._started()
        except (RuntimeError, OSError) as refused:
            self._voice.warn("start", f"it does not beat, and tries again: {refused}")
        else:
            self._voice.recover("it beats", "start")

    def _started(self) -> threading.Thread:
        """RuntimeError or OSError if the system has no thread or no descriptor to give."""
        self._patience.open()
        try:
            thread = threading.Thread(target=self._run, name="worker-presence", daemon=True)
            thread.start()
        except BaseException:
            self._patience.close()
            raise
        return thread

    def notice(self) -> None:
        """The load may have changed: a status that was not sent yet does not wait."""
        if not self._is_nudged and self._load.status != self._sent:
            self.nudge()

    def nudge(self) -> None:
        """Beat soon, unless beats fail just now: then their backoff goes on."""
        with self._turn:
            self._is_nudged = True
            self._turn.notify_all()

    def stop(self, says_goodbye: bool) -> bool:
        """End the beat in flight and beat no more; the goodbye takes a second at most.

        Whether the collector may have heard of it.
        """
        with self._turn:
            if self._is_leaving:
                return self._is_known
            self._is_leaving = True
            self._says_goodbye = says_goodbye
            self._leaves_by = time.monotonic() + LEAVE_SECONDS
            self._patience.cut(GRACE_SECONDS)
            self._liveness.abandon()
            self._turn.notify_all()
            return self._is_known

    def join(self) -> None:
        """Until all is said, or its second is over."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._over.wait(max(self._leaves_by - time.monotonic(), 0.0))

    def drop(self) -> None:
        """In a fork's child: let go of what is the parent's, and of its locks untouched."""
        _parked.append(self)
        self._connection.let_go()
        self._patience.close()

    def state(self) -> State:
        with self._turn:
            return State(
                agent_id=self._description.agent_id,
                status="offline" if self._is_leaving else self._load.status,
                active_sessions=self._load.sessions,
                is_beating=self._is_beating,
                last_accepted_at=self._record.last_accepted_at,
                consecutive_failures=self._record.consecutive_failures,
                last_error=self._record.last_error,
                clock_drift_seconds=self._record.clock_drift_seconds,
                failures=tuple(self._record.failures),
            )

    @property
    def _is_beating(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._is_leaving

    def _run(self) -> None:
        try:
            self._follow_the_former()
            while self._waits_its_turn():
                try:
                    self._take_turn()
                except BaseException:
                    # Whatever the host's own parts throw into one turn, the next comes.
                    self._due = max(self._due, self._clock.monotonic() + NUDGE_SECONDS)
            if self._says_goodbye and self._is_known:
                self._say_goodbye()
        finally:
            self._connection.close()
            self._patience.close()
            self._over.set()

    def _follow_the_former(self) -> None:
        """What it still says, perhaps a goodbye, must not come after the first beat of this one."""
        if self._former is not None:
            self._former.join()
            self._former = None

    def _waits_its_turn(self) -> bool:
        """Wait for the next beat's time; False is the end."""
        with self._turn:
            while not self._is_leaving:
                now = self._clock.monotonic()
                if now >= (due := self._next()):
                    self._is_nudged, self._began = False, now
                    return True
                self._clock.wait(self._turn, due - now)
        return False

    def _next(self) -> float:
        if self._is_nudged and not self._record.consecutive_failures:
            return min(self._due, self._began + NUDGE_SECONDS)
        return self._due

    def _take_turn(self) -> None:
        if why := self._liveness.trouble():
            self._voice.warn("silent", f"{why}; it does not beat until that is over")
            self._due = self._clock.monotonic() + NUDGE_SECONDS
            return
        self._voice.recover("it is alive again, and beats", "silent")
        with self._turn:
            if self._is_leaving:
                return
            self._patience.begin(ATTEMPT_SECONDS)
            self._is_known = True
        self._attempt()

    def _attempt(self) -> None:
        sent_at, status = self._clock.now(), self._load.status
        self._sent = status
        try:
            answer = self._post(status, self._load.sessions, sent_at)
        except Exception as error:
            self._fail(None, trouble.of_error(error, self._terms.address), None)
            return
        if answer.is_accepted:
            self._accept(answer, sent_at)
        else:
            told = trouble.of_answer(answer, self._terms.address)
            self._fail(answer.status, told, answer.retry_after)

    def _post(self, status: Status, sessions: int, now: float) -> Answer:
        vitals = self._sampler.sample()
        return self._connection.post(self._description.beat(status, sessions, vitals, now))

    def _accept(self, answer: Answer, sent_at: float) -> None:
        asked = _number(answer.body.get("next_beat_seconds"))
        with self._turn:
            ends_alert = self._record.accept(sent_at, _number(answer.body.get("server_time")))
            self._due = self._clock.monotonic() + until_next(self._terms.interval, asked)
        self._voice.recover("its beats are accepted again")
        if ends_alert:
            self._tell(self._terms.on_recovery)

    def _fail(self, status: int | None, told: str, asked: float | None) -> None:
        with self._turn:
            # A beat that was cut short by the leave has not failed.
            if self._is_leaving:
                return
            self._record.fail(told)
            failures = self._record.consecutive_failures
            self._due = self._clock.monotonic() + until_retry(failures, asked)
            calls_for_alert = self._record.calls_for_alert
        self._voice.warn(trouble.kind_of(status), told)
        if calls_for_alert:
            self._tell(self._terms.on_failure)

    def _tell(self, alert: Alert | None) -> None:
        """In a thread of its own: what the host does about it must not keep the next beat."""
        if alert is not None:
            told = (alert, self.state(), self._description.agent_id)
            thread = threading.Thread(
                target=_call, args=told, name="worker-presence-alert", daemon=True
            )
            # Without one to be had the host reads it in its log.
            with suppress(RuntimeError):
                thread.start()

    def _say_goodbye(self) -> None:
        self._patience.begin(max(self._leaves_by - time.monotonic(), 0.0))
        with suppress(Exception):
            self._post("offline", 0, self._clock.now())


def _call(alert: Alert, state: State, agent_id: str) -> None:
    try:
        alert(state)
    except Exception:
        log.trace("worker %s: what it was told to call failed", agent_id)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e12 else None
