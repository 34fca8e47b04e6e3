"""Other people's processes: real ones, which register a worker and go about their work."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from contract.producer.clock import Clock
from tests.fleet import Fleet
from tests.processes import environment

ROOT = Path(__file__).parents[1]
DEADLINE_SECONDS = 30

# What every host begins with: a log, a way to say something, and a way to wait for a word.
PRELUDE = """
import asyncio, json, logging, os, signal, sys, threading, time
from contract import register_worker

logging.basicConfig(format="%(levelname)s %(message)s", level="INFO")

def say(**facts):
    print(json.dumps(facts), flush=True)

def wait_for_word():
    return sys.stdin.readline()

def until(condition):
    while not condition():
        time.sleep(0.005)

def accepted(worker):
    return worker.state.last_accepted_at is not None
"""


class Host:
    """A running host; what it says arrives line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    @asynccontextmanager
    async def running(
        cls, program: str, url: str, key: str, **variables: str
    ) -> AsyncIterator[Host]:
        """That program after the prelude; nothing of it outlives the block."""
        command = (sys.executable, "-c", PRELUDE + program)
        async with cls.started(*command, url=url, key=key, cwd=ROOT, **variables) as host:
            yield host

    @classmethod
    @asynccontextmanager
    async def started(
        cls, *command: str | Path, url: str, key: str, cwd: Path = ROOT, **variables: str
    ) -> AsyncIterator[Host]:
        """Any command, which finds the collector and this repository in its environment."""
        given = {
            "VOICEGW_COLLECTOR_URL": url,
            "VOICEGW_API_KEY": key,
            "VOICEGW_AGENT_ID": "host-1",
            "PYTHONPATH": str(ROOT),
        }
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment(given | variables),
            cwd=cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # Its children go with it, also those that it lost.
            start_new_session=True,
        )
        try:
            yield cls(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()

    async def said(self) -> dict[str, Any]:
        """The next thing that it says."""
        facts: dict[str, Any] = json.loads(await self.line())
        return facts

    async def line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            line = await self._process.stdout.readline()
        assert line, await self.log()
        return line.decode().rstrip("\n")

    def tell(self, *words: str) -> None:
        """Give it the word that it waits for, or these lines."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{word}\n" for word in words or ("go on",)).encode())

    def hang_up(self) -> None:
        """There is nothing more to tell."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self, number: int) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._process.wait()

    async def logs(self, word: str) -> str:
        """The line of its log that has that word, once it is there."""
        assert self._process.stderr is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for line in self._process.stderr:
                if word in line.decode():
                    return line.decode()
        raise AssertionError(f"its log ended without {word!r}")

    async def log(self) -> list[str]:
        """All else that it logged, once it has ended; a traceback would be here too."""
        assert self._process.stderr is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            return (await self._process.stderr.read()).decode().splitlines()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.01)


async def shown(fleet: Fleet, agent_id: str, **facts: Any) -> dict[str, Any]:
    """That worker, once the roster shows it with these facts."""
    seen: dict[str, Any] = {}

    async def is_shown() -> bool:
        workers = {worker["agent_id"]: worker for worker in await fleet.roster()}
        seen.clear()
        seen.update(workers.get(agent_id, {}))
        return bool(seen) and all(seen[name] == value for name, value in facts.items())

    try:
        await until(is_shown)
    except TimeoutError:
        raise AssertionError(f"the roster shows {seen}, not {facts}") from None
    return seen


class SteppedClock(Clock):
    """The producer's own clock, for long spans: it stands still until the producer waits, and then
    goes straight to what that waits for."""

    def __init__(self) -> None:
        self._now = 1_000.0
        self._turn: threading.Condition | None = None
        self._until = 0.0

    def monotonic(self) -> float:
        return self._now

    def now(self) -> float:
        return 1_800_000_000.0 + self._now

    def wait(self, turn: threading.Condition, seconds: float) -> None:
        self._turn, self._until = turn, self._now + seconds
        turn.wait()
        self._turn = None

    async def settle(self) -> None:
        """Until the producer waits."""
        await asyncio.to_thread(self._parked)

    async def step(self) -> float:
        """Let the wait pass that the producer is in, until it is in the next; how long it was."""
        return await asyncio.to_thread(self._step)

    def _step(self) -> float:
        turn = self._parked()
        with turn:
            waited = self._until - self._now
            self._now, self._turn = self._until, None
            turn.notify_all()
        self._parked()
        return waited

    def _parked(self) -> threading.Condition:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (turn := self._turn) is None:
            assert time.monotonic() < deadline, "the producer does not wait"
            time.sleep(0.001)
        return turn
