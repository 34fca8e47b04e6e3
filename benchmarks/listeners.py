"""Very many subscribers in one cheap process: `python -m benchmarks.listeners HOST PORT FILE`.

FILE has a key and a cursor a line, and each line becomes one stream. What comes is counted and
thrown away. It prints its counts as JSON once every stream is open, and again for each line that
it reads; it ends with its input. Delays are from a line's own stamp to its arrival, by the clock of
this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

OPENING_AT_ONCE = 50
REQUEST = """GET /events HTTP/1.1\r
Host: collector\r
Authorization: Bearer {key}\r
Last-Event-ID: {cursor}\r
\r
"""


_STAMP = re.compile(rb'"type":"worker\.[^{]*?"at":([0-9.]+)')


@dataclass(frozen=True)
class Counts:
    """Since the start."""

    opened: int
    refused: int
    ended: int
    lines: int
    offline: int
    snapshots: int
    size: int
    cpu_seconds: float
    # Of the lines since the last time that somebody asked; 0 if there were none.
    p99_delay: float
    # When the newest line arrived, and the newest of the lines' own stamps.
    arrived_at: float
    newest_stamp: float


@dataclass
class Tally:
    """What all streams of this process have had."""

    opened: int = 0
    refused: int = 0
    ended: int = 0
    lines: int = 0
    offline: int = 0
    snapshots: int = 0
    size: int = 0
    arrived_at: float = 0
    newest_stamp: float = 0
    delays: list[float] = field(default_factory=list)

    def take(self, data: bytes) -> None:
        self.size += len(data)
        self.lines += data.count(b"event: worker.")
        self.offline += data.count(b"event: worker.offline")
        self.snapshots += data.count(b"event: snapshot")
        if stamps := [float(each) for each in _STAMP.findall(data)]:
            self.arrived_at = now = time.time()
            self.newest_stamp = max(self.newest_stamp, stamps[-1])
            self.delays += [now - stamp for stamp in stamps]

    def told(self) -> str:
        """As JSON of Counts; the delays begin anew."""
        delays, self.delays = sorted(self.delays), []
        p99 = delays[len(delays) * 99 // 100] if delays else 0
        ours = {name: value for name, value in vars(self).items() if name != "delays"}
        return json.dumps(ours | {"cpu_seconds": time.process_time(), "p99_delay": p99})


class Stream(asyncio.Protocol):
    """One subscriber; `answered` is set by the first bytes of the answer, or by its end."""

    def __init__(self, tally: Tally) -> None:
        self.answered = asyncio.Event()
        self._tally = tally
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        if not self.answered.is_set():
            self.answered.set()
            accepted = data.startswith(b"HTTP/1.1 200")
            self._tally.opened += accepted
            self._tally.refused += not accepted
        # What we look for stands within one line of the stream, and a read may end anywhere.
        whole, _, self._rest = (self._rest + data).rpartition(b"\n")
        self._tally.take(whole)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._tally.ended += 1
        self.answered.set()


async def listen(host: str, port: int, requests: list[bytes]) -> None:
    """Until the input ends, however far the opening has come."""
    tally, turn = Tally(), asyncio.Semaphore(OPENING_AT_ONCE)
    loop = asyncio.get_running_loop()

    async def open_one(request: bytes) -> None:
        async with turn:
            transport, stream = await loop.create_connection(lambda: Stream(tally), host, port)
            transport.write(request)
            await stream.answered.wait()

    async def open_all() -> None:
        await asyncio.gather(*map(open_one, requests))
        print(tally.told(), flush=True)

    opening = asyncio.create_task(open_all())
    await answer_each_line(tally.told)
    opening.cancel()


async def answer_each_line(told: Callable[[], str]) -> None:
    """Print what there is to tell for each line of the input, until that ends."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def read() -> None:
        asked = os.read(sys.stdin.fileno(), 1024)
        for _ in range(asked.count(b"\n")):
            print(told(), flush=True)
        if not asked:
            loop.remove_reader(sys.stdin.fileno())
            ended.set_result(None)

    loop.add_reader(sys.stdin.fileno(), read)
    await ended


def main(host: str, port: str, file: str) -> None:
    lines = [line.split() for line in Path(file).read_text().splitlines()]
    requests = [REQUEST.format(key=key, cursor=cursor).encode() for key, cursor in lines]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(listen(host, int(port), requests))


if __name__ == "__main__":
    main(*sys.argv[1:])
