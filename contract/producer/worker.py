"""What `register_worker` returns: the host's handle on its own presence."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from contract.producer.clock import Clock
from contract.producer.description import Description
from contract.producer.load import Load, Session
from contract.producer.pulse import Pulse, Terms
from contract.producer.record import State
from contract.vocabulary import Status


class RegisteredWorker:
    """One worker of this process. `str()` of it is its agent id.

    None of its methods raises or waits, `leave` aside.
    """

    def __init__(
        self,
        description: Description,
        terms: Terms | None,
        clock: Clock,
        on_left: Callable[[RegisteredWorker], None],
    ) -> None:
        self._description = description
        self._terms = terms
        self._clock = clock
        self._on_left = on_left
        self._has_left = False
        self._ancestor = description.agent_id
        self._load = Load(self._on_load)
        self._pulse = self._new_pulse()
        # The one before, while it says goodbye where this worker beat until then.
        self._former: Pulse | None = None

    def __str__(self) -> str:
        return self.agent_id

    def __repr__(self) -> str:
        return f"<RegisteredWorker {self.agent_id}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a worker can't be pickled: it is of this process; register_worker is for each process"
        )

    @property
    def agent_id(self) -> str:
        return self._description.agent_id

    @property
    def state(self) -> State:
        """How its beats fare at this moment."""
        if self._pulse is not None:
            return self._pulse.state()
        status: Status = "offline" if self._has_left else self._load.status
        sessions = self._load.sessions
        return State(self.agent_id, status, sessions, False, None, 0, None, None, ())

    def session(self) -> Session:
        """One piece of work: in hand while its `with` or `async with` is entered."""
        return Session(lambda: self._load)

    def busy(self) -> None:
        """Busy until `idle()`, whatever sessions there are; for hosts that do not count them."""
        self._load.set_busy(True)

    def idle(self) -> None:
        """Take `busy()` back; open sessions still make it busy."""
        self._load.set_busy(False)

    def beat_now(self) -> None:
        """Beat without waiting for the interval, at most once a second."""
        if self._pulse is not None:
            self.start()
            self._pulse.nudge()

    def leave(self) -> None:
        """Tell the collector that this worker goes, and beat no more; takes a second at most."""
        self.begin_leave()
        self.end_leave()
        self._on_left(self)

    def start(self) -> None:
        """Beat from now on, if it does not yet."""
        if self._pulse is not None:
            self._pulse.start()

    def begin_leave(self) -> None:
        self._has_left = True
        if self._pulse is not None:
            self._pulse.stop(says_goodbye=True)

    def end_leave(self) -> None:
        for pulse in (self._former, self._pulse):
            if pulse is not None:
                pulse.join()

    @property
    def has_left(self) -> bool:
        return self._has_left

    def become(self, description: Description, terms: Terms | None) -> None:
        """Registered once more under the same id: the newest word counts, sessions go on."""
        before, moves = self._pulse, self._moves_to(terms)
        is_known = before is not None and before.stop(says_goodbye=moves)
        self._former = before
        self._description = replace(description, started_at=self._description.started_at)
        self._terms = terms
        self._pulse = self._new_pulse(before, is_known and not moves)

    def forked(self) -> None:
        """In a fork's child: another worker, which is silent until it has something in hand."""
        parents, formers = self._pulse, self._former
        self._pulse = self._former = None
        self._load.let_go()
        self._load = Load(self._on_load)
        for pulse in (parents, formers):
            if pulse is not None:
                pulse.drop()
        if parents is None or self._has_left:
            return
        # Of a line of forks, the last that beat under a name gives it on.
        if parents.is_started:
            self._ancestor = self.agent_id
        self._description = replace(
            self._description,
            agent_id=f"{self._ancestor}-{os.getpid()}",
            started_at=self._clock.now(),
        )
        self._pulse = self._new_pulse()

    def _new_pulse(self, former: Pulse | None = None, is_known: bool = False) -> Pulse | None:
        if self._terms is None:
            return None
        return Pulse(self._description, self._load, self._terms, self._clock, former, is_known)

    def _moves_to(self, terms: Terms | None) -> bool:
        """Whether the collector that knows it will not hear of it any more."""
        return self._terms is not None and (terms is None or terms.leads_elsewhere(self._terms))

    def _on_load(self) -> None:
        if self._pulse is not None:
            self.start()
            self._pulse.notice()
