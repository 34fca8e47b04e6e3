"""The peer's producer, as `benchmarks.host` hosts it; only its own environment can import this."""

from __future__ import annotations

import asyncio

from voicegateway import register_worker  # type: ignore[import-not-found]
from voicegateway.fleet import worker  # type: ignore[import-not-found]


class Producer:
    """What the host may do with it."""

    def hurry(self) -> Hurry:
        return Hurry()

    def start(self, interval: float) -> None:
        register_worker("benchmark", interval=interval)

    async def leave(self) -> None:
        await worker.aclose()


class Hurry:
    """A worker that beats when it is told to, by the function that its own task calls."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._register())

    def beat(self, times: int) -> None:
        self._runner.run(self._push(times))

    async def _register(self) -> None:
        register_worker("benchmark")

    async def _push(self, times: int) -> None:
        for _ in range(times):
            await worker.push_once()
