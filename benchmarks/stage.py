"""A collector on a store of its own, the load for it, and what can be read off it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import load, processes, wrk
from benchmarks.fleet import Fleet
from benchmarks.places import Kind, Places, opened
from collector.store.protocol import Store

PATIENCE_SECONDS = 60


class Stage:
    """A store, and the collector that serves it; that may be ended and started again."""

    def __init__(
        self,
        where: Places,
        kind: Kind,
        url: str,
        store: Store,
        *,
        command: Sequence[str] = processes.SERVE,
        settings: Mapping[str, str] = processes.UNCHANGED,
    ) -> None:
        self._command = command
        self._settings = settings
        self.kind = kind
        self.store = store
        self.directory = where.directory
        self.url = url
        self._process: processes.Process | None = None

    @property
    def process(self) -> processes.Process:
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        """What it knew of keys and followers before is gone."""
        await self.stop()
        log = self.directory / f"{self.kind}.log"
        self._process = await asyncio.to_thread(
            processes.start,
            self._command,
            store_url=self.url,
            log=log,
            settings=self._settings,
        )

    async def stop(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._process.stop)

    async def kill(self) -> None:
        """Without waiting for what it has to do yet."""
        if self._process is not None and self._process.popen.poll() is None:
            await asyncio.to_thread(self._process.kill)

    async def warm(self, keys: Iterable[str]) -> None:
        """One beat with every key: its argon2 run is no part of a window."""
        turn = asyncio.Semaphore(16)

        async def warm_one(key: str) -> None:
            async with turn:
                if (status := await self.beat(key, "warm-up")) != 202:
                    raise wrk.Void(f"a beat was answered {status}")

        await asyncio.gather(*map(warm_one, keys))

    async def beat(self, key: str, agent_id: str) -> int:
        """One beat on a connection of its own; its status."""
        reader, writer = await asyncio.open_connection(self.process.host, self.process.port)
        try:
            return await load.beat(reader, writer, key, agent_id)
        finally:
            writer.close()

    def target(self, fleet: Fleet, one_in: int = 0) -> wrk.Target:
        """The fleet, aimed at this collector."""
        file = self.directory / f"{self.process.port}.fleet"
        fleet.write(file)
        return wrk.Target(f"http://{self.process.host}:{self.process.port}", file, one_in)

    async def until_subscribed_by(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._metric("collector_subscribers") != count:
                await asyncio.sleep(0.1)

    async def _metric(self, name: str) -> float:
        url = f"http://{self.process.host}:{self.process.port}/metrics"
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            text = (await http.get(url)).text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return next(sample.value for sample in samples if sample.name == name)


@asynccontextmanager
async def stage(
    where: Places,
    kind: Kind,
    *,
    url: str | None = None,
    command: Sequence[str] = processes.SERVE,
    settings: Mapping[str, str] = processes.UNCHANGED,
) -> AsyncIterator[Stage]:
    """A new store of that kind, or the one of that URL, not served yet."""
    url = url or where.new(kind)
    async with opened(url) as store:
        made = Stage(where, kind, url, store, command=command, settings=settings)
        try:
            yield made
        finally:
            await made.stop()


@asynccontextmanager
async def serving(where: Places, command: Sequence[str]) -> AsyncIterator[processes.Process]:
    """Something else behind the same server, on an empty store that it does not use."""
    log, url = where.directory / "others.log", where.new("selfhosted")
    process = await asyncio.to_thread(processes.start, command, store_url=url, log=log)
    try:
        yield process
    finally:
        await asyncio.to_thread(process.stop)
