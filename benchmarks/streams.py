"""Subscribers of a server, all in one process of their own, and what they have had."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes, wrk
from benchmarks.listeners import Counts
from benchmarks.stage import Stage
from benchmarks.usage import cpu_seconds, of_family

OPENING_SECONDS = 180
# Tenant and key of one who subscribes.
Subscriber = tuple[str, str]


@dataclass(frozen=True)
class Deliveries:
    """What came in one window, and what it cost the server and those it came to."""

    a_second: float
    cpu_microseconds: float
    p99_delay_ms: float
    listeners_cpu: float


class Streams:
    """All of them, open."""

    def __init__(self, child: asyncio.subprocess.Process, server: processes.Process) -> None:
        self._child = child
        self._server = server

    async def counts(self) -> Counts:
        assert self._child.stdin is not None
        self._child.stdin.write(b"\n")
        return await self.said()

    async def said(self) -> Counts:
        assert self._child.stdout is not None
        try:
            async with asyncio.timeout(OPENING_SECONDS):
                said = await self._child.stdout.readline()
        except TimeoutError:
            raise wrk.Void(f"void, streams were not open in {OPENING_SECONDS} s") from None
        if not said:
            raise wrk.Void("void, the subscribers' process ended")
        counts = Counts(**json.loads(said))
        if counts.refused or counts.ended:
            raise wrk.Void(f"void, streams were refused or ended: {counts}")
        return counts

    async def deliveries(self, seconds: float) -> Deliveries:
        """In the next so many seconds."""
        pid = self._server.popen.pid
        before, used = await self.counts(), of_family(cpu_seconds, pid)
        await asyncio.sleep(seconds)
        after, used = await self.counts(), of_family(cpu_seconds, pid) - used
        lines = after.lines - before.lines
        if not lines:
            raise wrk.Void("void, nothing was delivered")
        listening = (after.cpu_seconds - before.cpu_seconds) / seconds
        return Deliveries(lines / seconds, used / lines * 1e6, after.p99_delay * 1e3, listening)


@asynccontextmanager
async def streams(server: processes.Process, file: Path) -> AsyncIterator[Streams]:
    """One for each line of the file; they are gone when the block ends."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.listeners"),
        *(server.host, str(server.port), str(file)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        opened = Streams(child, server)
        await opened.said()
        yield opened
    finally:
        # It ends with its input, and so does not outlive us either.
        assert child.stdin is not None
        child.stdin.close()
        await child.wait()


@asynccontextmanager
async def subscribed(stage: Stage, subscribers: Sequence[Subscriber]) -> AsyncIterator[Streams]:
    """Everybody resumes from the newest line: snapshots at the start are another matter."""
    positions = {name: await stage.store.position(name) for name, _ in set(subscribers)}
    cursors = {name: f"{place.epoch}.{place.head}" for name, place in positions.items()}
    file = stage.directory / f"{stage.process.port}.streams"
    file.write_text("".join(f"{key} {cursors[name]}\n" for name, key in subscribers))
    async with streams(stage.process, file) as opened:
        await stage.until_subscribed_by(len(subscribers))
        yield opened
    await stage.until_subscribed_by(0)
