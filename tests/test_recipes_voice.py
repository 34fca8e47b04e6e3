"""The recipes for LiveKit and Pipecat, run by the real packages (`make recipes`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fleet import Fleet
from tests.hosts import ROOT, Host, shown

# Installing the packages needs the network: other runs don't even collect this.
__test__ = os.environ.get("RECIPES") == "1"

PACKAGES = ("livekit-agents==1.8.9", "pipecat-ai==1.14.0")
DIRECTORY = ROOT / ".recipes"
RECIPES = ROOT / "docs" / "recipes"

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend() -> str:
    """The producer knows no store: one is enough."""
    return "selfhosted"


@pytest.fixture(scope="session")
def voice_python() -> Path:
    """The Python of an environment that has both packages; made once, then kept."""
    python, installed = DIRECTORY / "venv" / "bin" / "python", DIRECTORY / " ".join(PACKAGES)
    if not installed.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", DIRECTORY / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        installed.touch()
    return python


async def test_the_bot_is_busy_while_its_pipeline_runs_and_leaves_when_it_is_done(
    fleet: Fleet, voice_python: Path
) -> None:
    command = (voice_python, RECIPES / "pipecat_bot.py")
    async with Host.started(*command, url=fleet.url, key=await fleet.key()) as host:
        host.tell("hello")
        assert await host.line() == "HELLO"
        await shown(fleet, "host-1", agent_name="shouter", status="busy", active_sessions=1)

        host.hang_up()
        assert await host.ended() == 0
        await shown(fleet, "host-1", status="offline", reason="left")


async def test_the_bot_leaves_when_it_is_terminated_in_the_middle_of_a_conversation(
    fleet: Fleet, voice_python: Path
) -> None:
    command = (voice_python, RECIPES / "pipecat_bot.py")
    async with Host.started(*command, url=fleet.url, key=await fleet.key()) as host:
        await shown(fleet, "host-1", status="busy")
        host.kill(signal.SIGTERM)

        assert await host.ended() == 0
        await shown(fleet, "host-1", status="offline", reason="left")


# LiveKit's own command, as `python -m livekit.agents start livekit_agent.py` runs it, with what
# only a LiveKit server could do besides: words on standard input begin and end jobs. These are the
# library's fake ones: real processes, in a room that is not there.
DISPATCHES = """
import asyncio, os, signal, sys
from livekit.agents.__main__ import main
from livekit.protocol import agent
from livekit_agent import server

async def dispatch():
    words = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(words)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async for word in words:
        if word == b"begin\\n":
            await server.simulate_job("room", fake_job=True)
            continue
        for process in [each for each in server._proc_pool.processes if each.running_job]:
            if word == b"end\\n":
                job = agent.JobTermination(job_id=process.running_job.job.id)
                await server._handle_termination(job)
            else:
                os.kill(process.pid, signal.SIGKILL)

if __name__ == "__main__":
    tasks = []
    server.on("worker_started", lambda: tasks.append(asyncio.create_task(dispatch())))
    sys.exit(main())
"""


@asynccontextmanager
async def agent_server(fleet: Fleet, python: Path, home: Path) -> AsyncIterator[Host]:
    """The recipe's server, which tries in vain to reach LiveKit all the while."""
    program = home / "dispatches.py"
    program.write_text(DISPATCHES)
    async with Host.started(
        # A simulation has no health check, whose port another test may have taken.
        *(python, program, "start", RECIPES / "livekit_agent.py", "--simulation"),
        url=fleet.url,
        key=await fleet.key(),
        cwd=home,
        HOME=str(home),
        PYTHONPATH=os.pathsep.join([str(ROOT), str(RECIPES)]),
        LIVEKIT_URL="ws://127.0.0.1:9",
        LIVEKIT_API_KEY="key",
        LIVEKIT_API_SECRET="secret" * 6,
    ) as host:
        yield host


@pytest.mark.parametrize("ends", ["end", "crash"])
async def test_an_agent_servers_job_is_a_session_until_it_ends_or_its_process_does(
    fleet: Fleet, voice_python: Path, tmp_path: Path, ends: str
) -> None:
    async with agent_server(fleet, voice_python, tmp_path) as host:
        await shown(fleet, "host-1", agent_name="reception", status="idle", active_sessions=0)
        host.tell("begin")
        await shown(fleet, "host-1", status="busy", active_sessions=1)
        host.tell(ends)
        await shown(fleet, "host-1", status="idle", active_sessions=0)

        assert [worker["agent_id"] for worker in await fleet.roster()] == ["host-1"]


async def test_an_agent_server_that_is_stopped_is_busy_until_its_last_job_ends_and_leaves(
    fleet: Fleet, voice_python: Path, tmp_path: Path
) -> None:
    async with agent_server(fleet, voice_python, tmp_path) as host:
        host.tell("begin")
        await shown(fleet, "host-1", status="busy", active_sessions=1)
        host.kill(signal.SIGTERM)
        # It logs to its standard output.
        while "draining worker" not in await host.line():
            continue
        await shown(fleet, "host-1", status="busy", active_sessions=1)

        host.tell("end")
        assert await host.ended() == 0
        await shown(fleet, "host-1", status="offline", reason="left")
