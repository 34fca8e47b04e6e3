"""A LiveKit agent server: one worker on the roster, whose sessions are the jobs that it runs.

Run it by LiveKit's own command: python -m livekit.agents start livekit_agent.py
"""

import asyncio
from contextlib import ExitStack

from livekit.agents import AgentServer, JobContext

from contract import RegisteredWorker, register_worker

server = AgentServer()
tasks: list[asyncio.Task[None]] = []  # asyncio itself keeps no hold on them


@server.rtc_session(agent_name="reception")
async def reception(ctx: JobContext) -> None:
    # LiveKit starts a process for each job and ends it with the job; this is where yours works:
    # `await AgentSession(...).start(agent=..., room=ctx.room)`.
    await ctx.connect()


@server.on("worker_started")
def appear() -> None:
    # Here, and not at the top: job processes import this file too, and each of them would be a
    # worker of its own that comes and goes with its job. Only the server's process is told this.
    worker = register_worker("reception", version="1.0", loop=asyncio.get_running_loop())
    tasks.append(asyncio.create_task(follow_jobs(worker)))
    # It leaves when the server has ended; while that waits for its last jobs, it is busy with them.


async def follow_jobs(worker: RegisteredWorker) -> None:
    """As many sessions as there are jobs; one whose process has crashed is none any more."""
    sessions: list[ExitStack] = []
    while True:
        jobs = len(server.active_jobs)
        while len(sessions) < jobs:
            sessions.append(ExitStack())
            sessions[-1].enter_context(worker.session())
        while len(sessions) > jobs:
            sessions.pop().close()
        await asyncio.sleep(0.5)
