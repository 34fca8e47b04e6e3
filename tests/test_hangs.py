"""What hangs is told, and ends: a real collector whose store is held up, on every store."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import asyncpg
import httpx2
import pytest
from sqlalchemy import make_url

from collector.store import cloud
from tests.factories import body
from tests.processes import Serving, children, create_key

HEARTBEAT = "/v1/agents/heartbeat"
# What a beat may wait for its refusal, whatever hangs.
REFUSED_SECONDS = 12
WRITERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND left(query, 200) = left($1, 200)"""


class Collector:
    """One process, and a client of it with a key for everything that is tried here."""

    def __init__(self, serving: Serving, http: httpx2.AsyncClient, store_url: str) -> None:
        self.serving, self.http, self.store_url = serving, http, store_url
        url = make_url(store_url)
        self.file = url.database if url.get_backend_name() == "sqlite" else None

    async def beat(self, agent_id: str = "worker-1") -> httpx2.Response:
        return await self.http.post(HEARTBEAT, json=body(agent_id))

    async def unready(self) -> list[str]:
        """What `/readyz` names."""
        answer = await self.http.get("/readyz")
        return [each["field"] for each in answer.json().get("errors", [])]

    async def until_unready(self) -> list[str]:
        async with asyncio.timeout(REFUSED_SECONDS):
            while not (named := await self.unready()):
                await asyncio.sleep(0.05)
        return named

    async def until_ready(self) -> None:
        async with asyncio.timeout(REFUSED_SECONDS):
            while await self.unready():
                await asyncio.sleep(0.05)


@asynccontextmanager
async def collecting(store_url: str, place: Path, **env: str) -> AsyncIterator[Collector]:
    key = create_key(store_url)["key"]
    with Serving(store_url, place, env=env) as serving:
        async with httpx2.AsyncClient(
            base_url=serving.url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=REFUSED_SECONDS,
            trust_env=False,
        ) as http:
            made = Collector(serving, http, store_url)
            assert (await made.beat("first")).status_code == 202
            yield made


@pytest.fixture
async def collector(store_url: str, tmp_path: Path) -> AsyncIterator[Collector]:
    async with collecting(store_url, tmp_path) as made:
        yield made


@asynccontextmanager
async def connected(store_url: str) -> AsyncIterator[asyncpg.Connection]:
    plain = make_url(store_url).set(drivername="postgresql")
    opened = await asyncpg.connect(plain.render_as_string(hide_password=False))
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def locked(collector: Collector) -> AsyncIterator[None]:
    """Somebody else holds the store's file, or its table, so that nobody writes beats."""
    if collector.file is not None:
        with closing(sqlite3.connect(collector.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
        return
    async with connected(collector.store_url) as other, other.transaction():
        await other.execute("LOCK TABLE workers IN ACCESS EXCLUSIVE MODE")
        yield


@asynccontextmanager
async def stopped_writer(collector: Collector) -> AsyncIterator[None]:
    """The process at the other end of the writer's connection stands still."""
    pid = await writer_of(collector)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def writer_of(collector: Collector) -> int:
    if collector.file is not None:
        (pid,) = children(collector.serving.pid)
        return pid
    async with connected(collector.store_url) as server:
        return int(await server.fetchval(WRITERS, cloud.COMMIT))


async def test_a_locked_store_is_told_and_its_end_ends_it(collector: Collector) -> None:
    async with locked(collector):
        first = asyncio.create_task(collector.beat())
        await asyncio.sleep(0)
        behind_it = [asyncio.create_task(collector.beat(f"worker-{n}")) for n in range(2, 6)]
        answers = await asyncio.gather(first, *behind_it)
        named = await collector.until_unready()

    served = await collector.beat()
    await collector.until_ready()

    assert {(each.status_code, each.json()["code"]) for each in answers} == {
        (503, "store_unavailable")
    }
    assert set(named) & {"commits", "listening"}
    assert served.status_code == 202


async def test_a_lock_is_told_although_nobody_beats(collector: Collector) -> None:
    async with locked(collector):
        assert "listening" in await collector.until_unready()

    await collector.until_ready()


async def test_a_writer_that_stands_still_is_replaced(collector: Collector) -> None:
    async with stopped_writer(collector):
        under_way = asyncio.create_task(collector.beat())
        named = await collector.until_unready()
        answer = await under_way
        await collector.until_ready()
        again = await collector.beat()

    assert "commits" in named
    assert answer.status_code in (202, 503)
    assert again.status_code == 202
