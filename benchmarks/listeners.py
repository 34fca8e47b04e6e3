"""Very many subscribers in one cheap process: `python -m benchmarks.listeners HOST PORT FILE`.

FILE has a key and a cursor a line, and each line becomes one stream. What comes is counted and
thrown away. It prints its counts as JSON once every stream is open, and again for each line that
it reads; it ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import uvloop

OPENING_AT_ONCE = 50
REQUEST = """GET /events HTTP/1.1\r
Host: collector\r
Authorization: Bearer {key}\r
Last-Event-ID: {cursor}\r
\r
"""


@dataclass
class Counts:
    """Since the start. A frame's name that falls between two reads is missed: one of thousands."""

    opened: int = 0
    refused: int = 0
    ended: int = 0
    lines: int = 0
    snapshots: int = 0
    size: int = 0
    cpu_seconds: float = field(default_factory=time.process_time)

    def now(self) -> str:
        return json.dumps(asdict(self) | {"cpu_seconds": time.process_time()})


class Stream(asyncio.Protocol):
    """One subscriber; `answered` is set by the first bytes of the answer, or by its end."""

    def __init__(self, counts: Counts) -> None:
        self.answered = asyncio.Event()
        self._counts = counts

    def data_received(self, data: bytes) -> None:
        counts = self._counts
        if not self.answered.is_set():
            self.answered.set()
            accepted = data.startswith(b"HTTP/1.1 200")
            counts.opened += accepted
            counts.refused += not accepted
        counts.size += len(data)
        counts.lines += data.count(b"event: worker.")
        counts.snapshots += data.count(b"event: snapshot")

    def connection_lost(self, _exc: Exception | None) -> None:
        self._counts.ended += 1
        self.answered.set()


async def listen(host: str, port: int, requests: list[bytes]) -> None:
    """Until the input ends, however far the opening has come."""
    counts, turn = Counts(), asyncio.Semaphore(OPENING_AT_ONCE)
    loop = asyncio.get_running_loop()

    async def open_one(request: bytes) -> None:
        async with turn:
            transport, stream = await loop.create_connection(lambda: Stream(counts), host, port)
            transport.write(request)
            await stream.answered.wait()

    async def open_all() -> None:
        await asyncio.gather(*map(open_one, requests))
        print(counts.now(), flush=True)

    opening = asyncio.create_task(open_all())
    await _answer_each_line(counts)
    opening.cancel()


async def _answer_each_line(counts: Counts) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def read() -> None:
        asked = os.read(sys.stdin.fileno(), 1024)
        for _ in range(asked.count(b"\n")):
            print(counts.now(), flush=True)
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
