"""The collectors of one store, killed at random and started again, and who is up at the moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from benchmarks.processes import Process


class Cluster:
    """A killed collector comes back by itself, on another port."""

    def __init__(self, start: Callable[[], Process]) -> None:
        self.kills = 0
        self._start = start
        self._up: list[Process] = []
        self._somebody_up = asyncio.Event()
        self._starting: set[asyncio.Task[None]] = set()

    async def url(self) -> str:
        """One that is up, whichever; waits while none is."""
        await self._somebody_up.wait()
        process = random.choice(self._up)
        return f"http://{process.host}:{process.port}"

    async def kill(self) -> None:
        """SIGKILL one of those that are up; waits while none is."""
        await self._somebody_up.wait()
        victim = self._up.pop(random.randrange(len(self._up)))
        if not self._up:
            self._somebody_up.clear()
        self.kills += 1
        self.add()
        await asyncio.to_thread(victim.kill)

    def add(self) -> None:
        """Start one more, in the background."""
        task = asyncio.create_task(self._add())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def complete(self) -> None:
        """Wait until everybody is up."""
        await asyncio.gather(*self._starting)

    async def stop(self) -> None:
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(asyncio.to_thread(process.stop) for process in self._up))

    async def _add(self) -> None:
        self._up.append(await asyncio.to_thread(self._start))
        self._somebody_up.set()


@asynccontextmanager
async def cluster(start: Callable[[], Process], size: int) -> AsyncIterator[Cluster]:
    """That many collectors, all of them up; none is left behind."""
    made = Cluster(start)
    try:
        for _ in range(size):
            made.add()
        await made.complete()
        yield made
    finally:
        await made.stop()
