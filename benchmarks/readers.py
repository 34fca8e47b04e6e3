"""Readers without manners, all in one process of their own: the load that one tenant makes.

`python -m benchmarks.readers HOST PORT FILE`, where FILE holds a `Crowd` as JSON. Each connection
asks, reads all of the answer and asks again at once, whatever the status was: a 429 is ignored.
A stream is read for as long as the crowd keeps it, and then opened anew. It ends with its input,
and prints what it was answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import httptools
import uvloop

from benchmarks.listeners import answer_each_line
from benchmarks.load import Address

# The crowd stands for machines elsewhere: on this one it must not take the server's processor.
NICE = 10
# A server that takes nobody in is asked again after this long.
REFUSED_SECONDS = 0.05


@dataclass(frozen=True)
class Crowd:
    """All readers ask for this."""

    path: str
    connections: int
    key: str = ""
    cursor: str = ""
    # A stream never ends by itself; None reads whole answers, 0 keeps a stream for ever.
    keep_seconds: float | None = None

    @property
    def request(self) -> bytes:
        lines = [f"GET {self.path} HTTP/1.1", "Host: collector"]
        lines += [f"Authorization: Bearer {self.key}"] if self.key else []
        lines += [f"Last-Event-ID: {self.cursor}"] if self.cursor else []
        return "\r\n".join([*lines, "", ""]).encode()


@dataclass(frozen=True)
class Answers:
    """How many answers began, by status, and how many bytes came."""

    statuses: dict[str, int]
    size: int


class Tally:
    """Counts the answers that this process got."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.size = 0

    def told(self) -> str:
        return json.dumps({"statuses": self.statuses, "size": self.size})


class Reader(asyncio.Protocol):
    """One connection."""

    def __init__(self, crowd: Crowd, tally: Tally) -> None:
        self.ended = asyncio.Event()
        self._crowd = crowd
        self._tally = tally
        self._parser = httptools.HttpResponseParser(self)
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._crowd.request)

    def data_received(self, data: bytes) -> None:
        self._tally.size += len(data)
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._tally.statuses[str(status)] += 1
        if self._crowd.keep_seconds and status == 200:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(self._crowd.keep_seconds, self._transport.abort)

    def on_message_complete(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._crowd.request)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self.ended.set()


async def read(host: str, port: int, crowd: Crowd) -> None:
    """Read until the input ends."""
    tally, loop = Tally(), asyncio.get_running_loop()

    async def read_for_ever() -> None:
        while True:
            try:
                _, reader = await loop.create_connection(lambda: Reader(crowd, tally), host, port)
            except OSError:
                await asyncio.sleep(REFUSED_SECONDS)
            else:
                await reader.ended.wait()

    reading = [asyncio.create_task(read_for_ever()) for _ in range(crowd.connections)]
    await answer_each_line(tally.told)
    for task in reading:
        task.cancel()
    print(tally.told(), flush=True)


class Reading:
    """A crowd that reads, and what it was answered when that was last looked at."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.answers = Answers({}, 0)
        self._child = child

    async def look(self) -> Answers:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(b"\n")
        self.answers = Answers(**json.loads(await self._child.stdout.readline()))
        return self.answers

    async def end(self) -> None:
        """It ends with its input, and so does not outlive us either."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        said, _ = await self._child.communicate()
        self.answers = Answers(**json.loads(said))

    def __str__(self) -> str:
        counts = ", ".join(f"{n:,} of {status}" for status, n in self.answers.statuses.items())
        return f"{counts or 'no answer'}, {self.answers.size / 1e6:,.0f} MB"


@asynccontextmanager
async def reading(server: Address, file: Path, crowd: Crowd) -> AsyncIterator[Reading]:
    """The crowd reads from that server until the block ends."""
    await asyncio.to_thread(file.write_text, json.dumps(asdict(crowd)))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.readers"),
        *map(str, (*server, file)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    found = Reading(child)
    try:
        yield found
    finally:
        await found.end()


def main(host: str, port: str, file: str) -> None:
    os.nice(NICE)
    crowd = Crowd(**json.loads(Path(file).read_text()))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(read(host, int(port), crowd))


if __name__ == "__main__":
    main(*sys.argv[1:])
