"""A collector under attack, the beats of others on it, and what was seen to be wrong."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import click
from sqlalchemy import make_url

from benchmarks import crowd, load, memory, processes
from benchmarks.fleet import Fleet, strangers
from benchmarks.memory import MB, Peak
from benchmarks.paced import paced
from benchmarks.places import Kind, Places
from benchmarks.stage import Stage, stage
from benchmarks.stretch import Stretch, stretch
from benchmarks.undefended import Defence

# A collector may be wrong in these respects; a control has to be wrong in the one of its defence.
Respect = Literal["memory", "beats", "answers", "ends", "ready", "back", "stops"]

TENANTS, WORKERS, BEATS_A_SECOND = 4, 400, 200
# The others' beats take longer now and then on a machine that is as busy as this; not so long.
BEATS_WITHIN_SECONDS = 1.0


@dataclass(frozen=True)
class Scale:
    """How large the attacks are, and how long they last."""

    # On two connections together, and on one.
    pipelined_bytes: int = 24 * MB
    pipelined_on_one_bytes: int = 5 * MB
    flood_seconds: float = 8
    # Past when something has to be over: thousands of connections are ended by one process.
    slack_seconds: float = 5
    headers_bytes: int = 62 * MB
    url_bytes: int = 128 * MB
    # So many requests of each kind are left half sent.
    halves: int = 2000
    request_seconds: int = 5
    shutdown_seconds: int = 5
    hang_seconds: float = 20
    lock_seconds: float = 40
    read_seconds: float = 3
    readers_workers: int = 20_000


@dataclass(frozen=True)
class Took:
    """How long the others' beats took, in seconds."""

    median: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Took:
        ordered = sorted(seconds)
        return cls(ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100])


@dataclass(frozen=True)
class Answer:
    """One request's; status 0 where none came. Times are of the event loop's clock."""

    sent_at: float
    seconds: float
    status: int
    code: str = ""


class Besieged:
    """An attack uses this, and notes here what it found."""

    def __init__(self, stage: Stage, fleet: Fleet, scale: Scale, stretch: Stretch | None) -> None:
        self.stage = stage
        self.fleet = fleet
        self.scale = scale
        # Between the collector's writer and PostgreSQL.
        self.stretch = stretch
        self.peak = Peak(0)
        self.tried = 0
        self.wrong: Counter[Respect] = Counter()
        self.faults: list[str] = []
        self.took: Took | None = None

    @property
    def process(self) -> processes.Process:
        return self.stage.process

    @property
    def pid(self) -> int:
        return self.process.popen.pid

    @property
    def is_running(self) -> bool:
        return self.process.popen.poll() is None

    def fault(self, respect: Respect, words: str, count: int = 1) -> None:
        """So many things are wrong in that respect; none is no fault."""
        if count:
            self.wrong[respect] += count
            self.faults.append(f"{respect}: {words}")

    def say(self, words: str) -> None:
        click.echo(f"  {words}", err=True)

    async def request(self, text: bytes, patience_seconds: float) -> Answer:
        """On a connection of its own."""
        began = asyncio.get_running_loop().time()
        status, body = 0, b""
        try:
            async with asyncio.timeout(patience_seconds):
                reader, writer = await asyncio.open_connection(*self.process.address)
                try:
                    status, body = await load.answer(reader, writer, text)
                finally:
                    writer.close()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            status = 0
        took = asyncio.get_running_loop().time() - began
        code = str(json.loads(body).get("code", "")) if body else ""
        return Answer(began, took, status, code)

    async def beat(self, patience_seconds: float) -> Answer:
        return await self.request(self.fleet.request(0), patience_seconds)

    async def readiness(self, patience_seconds: float) -> Answer:
        return await self.request(
            b"GET /readyz HTTP/1.1\r\nHost: collector\r\n\r\n", patience_seconds
        )

    @asynccontextmanager
    async def others(self, seconds: float) -> AsyncIterator[None]:
        """Others beat for so many seconds; the block begins when they are connected."""
        connected = asyncio.Event()
        beating = asyncio.create_task(self._paced(seconds, connected))
        try:
            await connected.wait()
            yield
            await beating
        finally:
            beating.cancel()

    async def _paced(self, seconds: float, connected: asyncio.Event) -> None:
        file = self.stage.target(self.fleet).fleet
        address = self.process.address
        found = await paced(*address, file, BEATS_A_SECOND, seconds, connected)
        worst = self.took or Took(0, 0)
        self.took = Took(max(worst.median, found.median), max(worst.p99, found.p99))
        self.tried += int(BEATS_A_SECOND * seconds)
        self.fault("beats", f"{found.refused} of others' were refused", found.refused)
        self.fault("beats", f"{found.unanswered} of others' were not answered", found.unanswered)
        if found.p99 > BEATS_WITHIN_SECONDS:
            self.fault("beats", f"99% of others' took up to {found.p99:.1f} s")

    def judge_memory(self) -> None:
        if self.peak.is_too_high:
            self.fault("memory", f"{self.peak.bytes / MB:,.0f} MB")


@asynccontextmanager
async def besieged(
    where: Places,
    kind: Kind,
    scale: Scale,
    *,
    without: Defence | None = None,
    settings: Mapping[str, str] = processes.UNCHANGED,
    descriptors: int | None = None,
    is_behind_a_stretch: bool = False,
) -> AsyncIterator[Besieged]:
    """A collector on a new store, whose memory is watched; nothing of it outlives the block."""
    command: Sequence[str] = processes.SERVE
    if without is not None:
        command = (sys.executable, "-m", "benchmarks.undefended", without)
    async with AsyncExitStack() as stack:
        url, between = where.new(kind), None
        if is_behind_a_stretch and kind == "cloud":
            there = make_url(url)
            assert there.host is not None
            assert there.port is not None
            between = await stack.enter_async_context(stretch(there.host, there.port))
            through = there.set(port=between.port).render_as_string(hide_password=False)
            settings = {**settings, "COLLECTOR_DIRECT_URL": through}
        made = stage(where, kind, url=url, command=command, settings=settings)
        on = await stack.enter_async_context(made)
        fleet = await crowd.admit(on.store, strangers(TENANTS, WORKERS))
        await on.start()
        process = on.process
        # Not gently: what an attack has left in it would take its time.
        stack.push_async_callback(on.kill)
        if descriptors is not None:
            resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
        await on.warm(fleet.keys)
        under_attack = Besieged(on, fleet, scale, between)
        async with memory.watched(process.popen.pid) as under_attack.peak:
            yield under_attack
        under_attack.judge_memory()
