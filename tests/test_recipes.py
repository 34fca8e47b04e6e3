"""The programs of docs/recipes/, as they stand there: real processes, and what the roster shows."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from contract.vocabulary import TTL_SECONDS
from tests.between import Between
from tests.fleet import Fleet
from tests.hosts import ROOT, Host, shown

pytestmark = pytest.mark.anyio

RECIPES = ROOT / "docs" / "recipes"


@pytest.fixture
def backend() -> str:
    """The producer knows no store: one is enough."""
    return "selfhosted"


@asynccontextmanager
async def recipe(fleet: Fleet, name: str, *args: str | Path, url: str = "") -> AsyncIterator[Host]:
    command = (sys.executable, RECIPES / name, *args)
    async with Host.started(*command, url=url or fleet.url, key=await fleet.key()) as host:
        yield host


@asynccontextmanager
async def call(port: int | str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A file that takes as long to read as the test wants."""
    os.mkfifo(tmp_path / "job")
    return tmp_path / "job"


async def test_the_script_is_busy_with_each_job_and_leaves_at_its_end(
    fleet: Fleet, job: Path
) -> None:
    async with recipe(fleet, "script.py", job) as host:
        await shown(fleet, "host-1", agent_name="digests", status="busy", active_sessions=1)
        await asyncio.to_thread(job.write_bytes, b"work")

        assert await host.line() == f"{sha256(b'work').hexdigest()} {job}"
        assert (await host.ended(), await host.log()) == (0, [])
        await shown(fleet, "host-1", status="offline", reason="left")


async def test_the_script_leaves_when_it_is_terminated_in_the_middle_of_a_job(
    fleet: Fleet, job: Path
) -> None:
    async with recipe(fleet, "script.py", job) as host:
        await shown(fleet, "host-1", status="busy")
        host.kill(signal.SIGTERM)

        assert (await host.ended(), await host.log()) == (128 + signal.SIGTERM, [])
        await shown(fleet, "host-1", status="offline", reason="left")


async def test_the_service_is_busy_while_it_has_a_call_and_leaves_when_it_is_stopped(
    fleet: Fleet,
) -> None:
    async with recipe(fleet, "service.py") as host:
        port = (await host.line()).rpartition(" ")[2]
        await shown(fleet, "host-1", agent_name="shouter", status="idle", active_sessions=0)
        async with call(port) as (reader, writer):
            writer.write(b"hello\n")
            assert await reader.readline() == b"HELLO\n"
            await shown(fleet, "host-1", status="busy", active_sessions=1)
        await shown(fleet, "host-1", status="idle", active_sessions=0)

        host.kill(signal.SIGTERM)
        assert (await host.ended(), await host.log()) == (0, [])
        await shown(fleet, "host-1", status="offline", reason="left")


async def test_the_service_leaves_also_with_a_call_in_hand(fleet: Fleet) -> None:
    async with recipe(fleet, "service.py") as host, call((await host.line()).split()[-1]):
        await shown(fleet, "host-1", status="busy")
        host.kill(signal.SIGTERM)

        assert (await host.ended(), await host.log()) == (0, [])
        await shown(fleet, "host-1", status="offline", reason="left")


# The recipe itself never blocks its loop; a handler that runs in its main thread does.
HANGS = f"""
import runpy, signal, time
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600))
runpy.run_path({str(RECIPES / "service.py")!r}, run_name="__main__")
"""


async def test_a_service_whose_loop_hangs_is_told_by_the_ttl(fleet: Fleet) -> None:
    command = (sys.executable, "-c", HANGS)
    async with Host.started(*command, url=fleet.url, key=await fleet.key()) as host:
        async with call((await host.line()).split()[-1]) as (reader, writer):
            await shown(fleet, "host-1", status="busy")
            writer.write_eof()
            assert await reader.read() == b""
        # The call's end is yet to be told: what hangs now keeps that beat from being sent.
        host.kill(signal.SIGUSR1)

        assert "its event loop has not come round for 5 s" in await host.logs("event loop")
        fleet.clock.move(TTL_SECONDS + 1)
        await shown(fleet, "host-1", status="offline", reason="lost")


async def test_the_monitor_counts_its_tasks_tells_failures_and_recovers(fleet: Fleet) -> None:
    async with (
        Between.before(fleet.url) as between,
        recipe(fleet, "monitor.py", "worker-local-1", url=between.url) as host,
    ):
        host.tell("add task-1", "add task-2", "add task-2")
        await shown(fleet, "worker-local-1", status="busy", active_sessions=2)

        between.mode = "answer"
        host.tell("done task-1", "failed task-2", "done task-3")
        told = [await host.line() for _ in range(4)]
        assert told[0] == "ALERT worker-local-1: 3 beats failed"
        assert [line.split()[0] for line in told[1:]] == ["1.", "2.", "3."]
        assert all("answers 500" in line for line in told[1:])

        between.mode = "pass"
        assert await host.line() == "RECOVERED worker-local-1: the roster knows it again"
        await shown(fleet, "worker-local-1", status="idle", active_sessions=0)

        host.hang_up()
        assert await host.line() == "1 done, 1 failed"
        assert await host.ended() == 0
        await shown(fleet, "worker-local-1", status="offline", reason="left")


REQUEST = b"POST / HTTP/1.1\r\nHost: words\r\nConnection: close\r\nContent-Length: 11\r\n\r\n"


@pytest.mark.parametrize("options", [[], ["--preload"]], ids=["forked", "preloaded"])
async def test_each_gunicorn_worker_is_one_of_the_roster_busy_with_its_request_and_leaves(
    fleet: Fleet, options: list[str], tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "gunicorn", "--bind=127.0.0.1:0", *options, "app:app")
    async with (
        Host.started(
            *command,
            url=fleet.url,
            key=await fleet.key(),
            cwd=RECIPES / "gunicorn",
            HOME=str(tmp_path),
        ) as master,
        AsyncExitStack() as stack,
    ):
        port = re.findall(r"http:.*:(\d+)", await master.logs("Listening at"))[0]
        pids = [(await master.logs("Booting worker")).split()[-1] for _ in range(2)]
        workers = [f"host-1-{pid}" for pid in pids]
        for worker in workers:
            await shown(fleet, worker, agent_name="words", status="idle", conflict=False)

        # A worker answers one request at a time, and waits for these to be complete.
        calls = [await stack.enter_async_context(call(port)) for _ in workers]
        for _, writer in calls:
            writer.write(REQUEST)
        for worker in workers:
            await shown(fleet, worker, status="busy", active_sessions=1)
        for reader, writer in calls:
            writer.write(b"three words")
            assert (await reader.read()).endswith(b"2 words\n")
        for worker in workers:
            await shown(fleet, worker, status="idle", active_sessions=0)

        master.kill(signal.SIGTERM)
        assert await master.ended() == 0
        for worker in workers:
            await shown(fleet, worker, status="offline", reason="left")
        assert {worker["agent_id"] for worker in await fleet.roster()} == set(workers)


def test_the_page_tells_of_every_recipe() -> None:
    links = set(re.findall(r"\]\(([^)#]+)\)", (RECIPES / "README.md").read_text()))
    programs = {str(file.relative_to(RECIPES)) for file in RECIPES.rglob("*.py")}

    assert programs <= links
    assert all((RECIPES / link).exists() for link in links)
