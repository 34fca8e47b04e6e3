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

from collector.cli.exits import CUT_OFF
from collector.store import cloud
from collector.store.selfhosted import only_collector
from tests.conftest import BACKENDS
from tests.factories import body
from tests.processes import Serving, children, create_key
from tests.relay import Relay

HEARTBEAT = "/v1/agents/heartbeat"
# What a beat may wait for its refusal, whatever hangs.
REFUSED_SECONDS = 12
on_a_shared_store = pytest.mark.parametrize(
    "backend", [name for name in BACKENDS[:2] if name != "selfhosted"], indirect=True
)
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

    async def until_waiting(self, beats: int) -> None:
        """Until so many beats wait for their commit."""
        async with asyncio.timeout(REFUSED_SECONDS):
            while f"\ncollector_queue_beats {beats}.0\n" not in await self._metrics():
                await asyncio.sleep(0.05)

    async def _metrics(self) -> str:
        return (await self.http.get("/metrics")).text

    async def until_ready(self) -> None:
        async with asyncio.timeout(REFUSED_SECONDS):
            while await self.unready():
                await asyncio.sleep(0.05)


@asynccontextmanager
async def collecting(store_url: str, place: Path, **env: str) -> AsyncIterator[Collector]:
    async with collecting_beside(store_url, store_url, place, **env) as made:
        yield made


@asynccontextmanager
async def collecting_beside(
    store_url: str, through: str, place: Path, **env: str
) -> AsyncIterator[Collector]:
    """A collector that reaches the store another way than everybody else."""
    # In threads: this very loop may be that way.
    key = (await asyncio.to_thread(create_key, store_url))["key"]
    with await asyncio.to_thread(Serving, through, place, env=env) as serving:
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
        # So many that they would not all be in one batch.
        behind_it = [asyncio.create_task(collector.beat(f"worker-{n}")) for n in range(2, 40)]
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


# Told to stop


SHUTDOWN_SECONDS = 3
# Beside them, what a busy machine takes to notice.
STOPPED_SECONDS = SHUTDOWN_SECONDS + 2


@pytest.fixture
async def stopping(store_url: str, tmp_path: Path) -> AsyncIterator[Collector]:
    env = {"COLLECTOR_SHUTDOWN_SECONDS": str(SHUTDOWN_SECONDS)}
    async with collecting(store_url, tmp_path, **env) as made:
        yield made


async def stopped(collector: Collector) -> int:
    return await asyncio.to_thread(collector.serving.stop, within=STOPPED_SECONDS)


async def test_a_stop_ends_in_time_while_a_commit_hangs(stopping: Collector) -> None:
    async with locked(stopping):
        beats = [asyncio.create_task(stopping.beat(f"worker-{n}")) for n in range(4)]
        await stopping.until_waiting(len(beats))
        await stopped(stopping)

    answers = await asyncio.gather(*beats, return_exceptions=True)
    assert 202 not in [getattr(each, "status_code", None) for each in answers]


async def test_a_stop_ends_in_time_while_the_writer_stands_still(stopping: Collector) -> None:
    async with stopped_writer(stopping):
        under_way = asyncio.create_task(stopping.beat())
        await stopping.until_waiting(1)
        await stopped(stopping)
        with suppress(httpx2.TransportError):
            await under_way
        if stopping.file is not None:
            # Nor is the lock left with an orphan: the next one starts.
            only_collector(Path(stopping.file)).close()


async def test_a_stop_ends_in_time_while_nobody_reads_the_log(
    store_url: str, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    env = {"COLLECTOR_SHUTDOWN_SECONDS": str(SHUTDOWN_SECONDS)}
    with Serving(store_url, tmp_path, env=env, log=writing) as serving:
        fill(writing)
        async with httpx2.AsyncClient(base_url=serving.url, trust_env=False) as http:
            # It is logged once it is answered, and so the event loop hangs.
            await http.get("/nowhere", headers={"Authorization": "Bearer nobody's"})
            with pytest.raises(httpx2.TimeoutException):
                await http.get("/healthz", timeout=1)
            code = await asyncio.to_thread(serving.stop, within=STOPPED_SECONDS)
    os.close(reading)
    os.close(writing)

    assert code == CUT_OFF


@on_a_shared_store
async def test_a_stop_ends_in_time_while_the_server_is_silent(
    store_url: str, tmp_path: Path
) -> None:
    env = {"COLLECTOR_SHUTDOWN_SECONDS": str(SHUTDOWN_SECONDS)}
    url = make_url(store_url)
    async with Relay.before(url.host or "127.0.0.1", url.port or 5432) as relay:
        through = url.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
        async with collecting_beside(store_url, through, tmp_path, **env) as made:
            relay.passes.clear()
            asked = [made.beat(), made.http.get("/v1/agents"), made.http.get("/v1/keys")]
            under_way = [asyncio.create_task(each) for each in asked]
            await made.until_waiting(1)
            await stopped(made)
            await asyncio.gather(*under_way, return_exceptions=True)


def fill(pipe: int) -> None:
    """Through a description of its own: the collector's stays one that blocks."""
    own = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(own, b"." * 4096)
    with suppress(BlockingIOError):
        while True:
            os.write(own, b".")
    os.close(own)
