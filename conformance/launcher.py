"""Starts a real collector of ours on a free port, over a real store, with its time in our hands."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from conformance.clocks import MovedClock
from conformance.partitions import partition
from conformance.postgres import Server, installations
from conformance.target import Keys, Target, Unreachable

# `partitioned` is the cloud store with its tables in parts, by tenant.
STORES = ("selfhosted", "cloud", "partitioned")
# Here every heartbeat goes through the app: its connection lets none in.
SLOW = {f"{store}-slow": store for store in STORES[:2]}
OWN = (*STORES, *SLOW)
START = 1_783_200_000_000_000
# Small enough to be filled by a case, large enough for all the others at once.
SETTINGS = {
    "COLLECTOR_QUEUE_LIMIT": "2048",
    "COLLECTOR_SUBSCRIBERS": "64",
    "COLLECTOR_MAX_KEYS": "30",
}
ORDER_SECONDS = 60
ROOT = Path(__file__).parents[1]


class Launched:
    """A collector of ours, and what only its launcher can do to it."""

    def __init__(self, store_url: str, tree: Path, log: Path, *, fast_path: str) -> None:
        self._environment = _environment() | SETTINGS
        self._environment |= {"COLLECTOR_STORE_URL": store_url, "COLLECTOR_FAST_PATH": fast_path}
        self._tree = tree
        self._turn = asyncio.Lock()
        self._number = 0
        self._log = log
        self.port = 0

    async def start(self, now: int = START) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "conformance.launched", str(now), str(self.port)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=self._tree,
                env=self._environment | {"PYTHONPATH": str(self._tree)},
            )
        try:
            self.port = (await self._hear())["port"]
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(ORDER_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def move(self, micros: int) -> None:
        await self._order("move", micros)

    async def jump(self, micros: int) -> None:
        await self._order("jump", micros)

    async def listen(self) -> None:
        await self._order("listen")

    async def mint(self, tenant: str, *scopes: str) -> str:
        return str(await self._order("mint", tenant, scopes))

    async def revoke(self, key: str) -> None:
        await self._order("revoke", key.removeprefix("vk_")[:8])

    async def prune(self, keep: int) -> None:
        await self._order("prune", keep)

    async def retire(self) -> None:
        await self._order("retire")

    async def store(self, how: str) -> None:
        await self._order("store", how)

    async def restart(self) -> None:
        now = await self._order("now")
        self._process.kill()
        await self._process.wait()
        await self.start(now)

    async def _order(self, *order: Any) -> Any:
        async with self._turn:
            assert self._process.stdin is not None
            self._number += 1
            self._process.stdin.write(json.dumps([self._number, *order]).encode() + b"\n")
            answer = await self._hear()
            # What answers an order that nobody waited for to the end.
            while answer["number"] != self._number:
                answer = await self._hear()
        if "failed" in answer:
            raise Unreachable(f"the collector refused {order[0]}: {answer['failed']}")
        return answer["done"]

    async def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(ORDER_SECONDS):
            line = await self._process.stdout.readline()
        if not line:
            code, said = await self._process.wait(), self._log.read_text()[-2000:]
            raise Unreachable(f"the collector ended with code {code}:\n{said}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def launched(kind: str, tree: Path = ROOT) -> AsyncIterator[Target]:
    """A collector over a new store of this kind, gone with the block; its code is the tree's."""
    store = SLOW.get(kind, kind)
    with tempfile.TemporaryDirectory(prefix="conformance-") as name, _postgres(store) as server:
        url = server.url() if server else f"sqlite:///{Path(name) / 'collector.db'}"
        if server and store == "partitioned":
            await _migrate(url, tree)
            server.execute(partition())
        async with launched_on(url, kind, tree=tree) as target:
            yield target


@asynccontextmanager
async def launched_on(
    store_url: str, kind: str, *, tree: Path = ROOT, now: int = START
) -> AsyncIterator[Target]:
    """A collector over that store, whatever is in it; its time begins at `now`."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        fast_path = "off" if kind in SLOW else "on"
        collector = Launched(store_url, tree, Path(name) / "log", fast_path=fast_path)
        await collector.start(now)
        try:
            yield Target(
                name=kind,
                url=f"http://127.0.0.1:{collector.port}",
                keys=await _mint_all(collector),
                clock=MovedClock(collector.move),
                control=collector,
            )
        finally:
            await collector.stop()


async def _mint_all(collector: Launched) -> Keys:
    everything = ("ingest", "read", "admin")
    return Keys(
        a=await collector.mint("tenant-a", *everything),
        b=await collector.mint("tenant-b", *everything),
        ingest=await collector.mint("tenant-a", "ingest"),
        read=await collector.mint("tenant-a", "read"),
    )


async def _migrate(store_url: str, tree: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "collector", "migrate"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tree,
        env=_environment() | {"COLLECTOR_STORE_URL": store_url, "PYTHONPATH": str(tree)},
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise Unreachable(f"the store was not migrated:\n{said.decode()[-2000:]}")


def _postgres(store: str) -> AbstractContextManager[Server | None]:
    if store == "selfhosted":
        return nullcontext()
    found = installations()
    if not found:
        raise Unreachable("no PostgreSQL: install worker-presence[conformance], or PostgreSQL")
    return Server.start(found[0])


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("COLLECTOR_")}
