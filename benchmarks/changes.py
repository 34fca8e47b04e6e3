"""Workers of which each beat changes something, at a steady rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks import load, wrk
from benchmarks.fleet import BODY
from benchmarks.processes import Process

WORKERS = 40
CONNECTIONS = 4


@asynccontextmanager
async def changing(server: Process, key: str, a_second: int) -> AsyncIterator[None]:
    """So many changes a second of one tenant's workers, while the block lasts."""
    pause = CONNECTIONS / a_second
    tasks = [
        asyncio.create_task(_change_on_time(server, key, n, pause)) for n in range(CONNECTIONS)
    ]
    try:
        yield
        if failed := [task for task in tasks if task.done()]:
            raise wrk.Void(f"void, changes stopped: {failed[0].exception()}")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _change_on_time(server: Process, key: str, first: int, pause: float) -> None:
    """By the clock; what was late is not made up for."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(server.host, server.port)
    due = loop.time() + pause * first / CONNECTIONS
    turn = 0
    try:
        while True:
            await asyncio.sleep(due - loop.time())
            agent_id = f"actor-{(first + turn * CONNECTIONS) % WORKERS}"
            fields = BODY | {"agent_id": agent_id, "active_sessions": turn}
            if (status := await load.send(reader, writer, key, fields)) != 202:
                raise wrk.Void(f"a beat was answered {status}")
            turn, due = turn + 1, max(due + pause, loop.time())
    finally:
        writer.close()
