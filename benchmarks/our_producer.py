"""Our producer, as `benchmarks.host` hosts it."""

from __future__ import annotations

import threading

from contract import register_worker
from contract.producer import registry
from contract.producer.clock import Clock


class Hurried(Clock):
    """Passes over so many of the producer's waits as it is asked to, and then stands still."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._waits_left = 0
        self._turn: threading.Condition | None = None
        self._stands = threading.Event()

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead

    def wait(self, turn: threading.Condition, seconds: float) -> None:
        if self._waits_left:
            self._waits_left -= 1
            self._ahead += seconds
            return
        self._turn = turn
        self._stands.set()
        turn.wait()

    def pass_over(self, waits: int) -> None:
        self._stands.wait()
        assert self._turn is not None
        with self._turn:
            self._waits_left = waits
            self._stands.clear()
            self._turn.notify_all()
        self._stands.wait()


class Producer:
    """What the host may do with it."""

    def hurry(self) -> Hurry:
        return Hurry()

    def start(self, interval: float) -> None:
        self._worker = register_worker("benchmark", interval=interval)

    async def leave(self) -> None:
        # The producer itself does without: it is not to be charged with that memory.
        import asyncio

        await asyncio.to_thread(self._worker.leave)


class Hurry:
    """A worker that beats when it is told to, through the producer's own thread."""

    def __init__(self) -> None:
        registry.clock = self._clock = Hurried()
        register_worker("benchmark")

    def beat(self, times: int) -> None:
        self._clock.pass_over(times)
