"""Beats on a schedule, whatever the answers, from a process of its own.

A beat's time begins when it was due, not when a connection was free for it: a server that stalls
makes all wait that were due meanwhile. An event loop's timers know whole milliseconds: a beat is
due up to one after its time, and what is later than that counts.

`python -m benchmarks.paced HOST PORT FLEET RATE SECONDS` prints an empty line when it is connected,
and what it found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import uvloop

from benchmarks.fleet import Fleet

CONNECTIONS = 64
TICK_SECONDS = 0.001
# How long the last answers are waited for.
DRAIN_SECONDS = 10


@dataclass(frozen=True)
class Paced:
    """Times in seconds, from when a beat was due."""

    beats: int
    rate: float
    refused: int
    unanswered: int
    # Of all that were due, the share that was accepted before the schedule ended.
    kept_up: float
    median: float
    p99: float
    p999: float
    # How late this process itself was with the beats that were due.
    late_p99: float
    cpu_seconds: float

    def __str__(self) -> str:
        said = f"{self.rate:.0f} beats a second, p50 {self.median * 1000:.1f} ms"
        return f"{said}, p99 {self.p99 * 1000:.1f}" if self.void is None else f"void, {self.void}"

    @property
    def void(self) -> str | None:
        """Why it says nothing of the server, if so."""
        if self.refused or self.unanswered:
            return f"{self.refused} beats were refused, {self.unanswered} not answered"
        if self.late_p99 > self.p99 / 4:
            return f"the schedule was not held: late by {self.late_p99 * 1000:.1f} ms"
        if self.median > CONNECTIONS / self.rate:
            return f"{self.rate:.0f} beats a second were too many: most waited for a connection"
        return None


class Schedule:
    """What is due goes out by whichever connection is free, in order."""

    def __init__(self, requests: list[bytes], rate: float, seconds: float) -> None:
        self.took: list[float] = []
        self.late: list[float] = []
        self.refused = 0
        self.in_time = 0
        self.idle: list[Connection] = []
        self.done = asyncio.Event()
        self._requests = requests
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._rate = rate
        self._count = int(rate * seconds)
        self._due = 0
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._began = time.monotonic() + 10 * TICK_SECONDS
        self._cpu_before = time.process_time()
        self._ticks = 0
        self._tick()

    def _tick(self) -> None:
        """Catches up with every tick that has passed, each beat at its own tick's time."""
        # Not the loop's own time, which stands still while a turn of it lasts.
        now = time.monotonic()
        while (at := self._began + self._ticks * TICK_SECONDS) <= now:
            until = min(self._count, int(self._ticks * TICK_SECONDS * self._rate))
            due = min(now, at + TICK_SECONDS)
            for n in range(self._due, until):
                self._waiting.append((due, self._requests[n % len(self._requests)]))
                self.late.append(now - due)
            self._due = until
            self._ticks += 1
        while self.idle and self._waiting:
            self.idle.pop().send(*self._waiting.popleft())
        if self._due < self._count:
            self._loop.call_later(at - now, self._tick)

    def answered(self, connection: Connection, due: float, accepted: bool) -> None:
        now = time.monotonic()
        self.took.append(now - due)
        self.refused += not accepted
        self.in_time += accepted and now <= self._began + self._seconds
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self.idle.append(connection)
        if len(self.took) == self._count:
            self.done.set()

    def found(self) -> Paced:
        # A beat that was not answered has waited at least as long as the last answers did.
        unanswered = self._count - len(self.took)
        took, late = sorted(self.took + [DRAIN_SECONDS] * unanswered), sorted(self.late)
        return Paced(
            beats=len(self.took),
            rate=self._rate,
            refused=self.refused,
            unanswered=unanswered,
            kept_up=self.in_time / self._count,
            median=took[len(took) // 2],
            p99=took[len(took) * 99 // 100],
            p999=took[len(took) * 999 // 1000],
            late_p99=late[len(late) * 99 // 100],
            cpu_seconds=time.process_time() - self._cpu_before,
        )


class Connection(asyncio.Protocol):
    """One beat at a time."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._due = 0.0
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._schedule.idle.append(self)

    def send(self, due: float, request: bytes) -> None:
        self._due = due
        self._transport.write(request)

    def connection_lost(self, _error: Exception | None) -> None:
        # A server may end one that had nothing to say yet.
        if self in self._schedule.idle:
            self._schedule.idle.remove(self)

    def data_received(self, data: bytes) -> None:
        answer = self._answer + data
        # Every answer is one short JSON object.
        if not answer.endswith(b"}"):
            self._answer = answer
            return
        self._answer = b""
        self._schedule.answered(self, self._due, answer.startswith(b"HTTP/1.1 202"))


async def pace(host: str, port: int, texts: list[bytes], rate: float, seconds: float) -> Paced:
    schedule, loop = Schedule(texts, rate, seconds), asyncio.get_running_loop()
    for _ in range(CONNECTIONS):
        await loop.create_connection(lambda: Connection(schedule), host, port)
    print(flush=True)
    schedule.start()
    try:
        async with asyncio.timeout(seconds + DRAIN_SECONDS):
            await schedule.done.wait()
    except TimeoutError:
        pass
    return schedule.found()


def main(host: str, port: str, fleet: str, rate: str, seconds: str) -> None:
    known = Fleet.read(Path(fleet))
    texts = [known.request(n) for n in known.numbers()]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(pace(host, int(port), texts, float(rate), float(seconds)))
    print(json.dumps(asdict(found)))


async def paced(
    host: str,
    port: int,
    fleet: Path,
    rate: float,
    seconds: float,
    connected: asyncio.Event | None = None,
) -> Paced:
    """The same from a process of its own; the event is set when that one is connected."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.paced"),
        *(host, str(port), str(fleet), str(rate), str(seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        if connected is not None:
            connected.set()
        said, _ = await process.communicate()
    finally:
        # A run that is ended early leaves nobody behind who goes on beating.
        if process.returncode is None:
            process.kill()
    return Paced(**json.loads(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
