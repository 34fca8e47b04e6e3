"""The fleet's beats from the opening on: over HTTP, on a few connections that stay open."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from zlib import crc32

from collector.demo.scenario import Scenario, Sent

RETRY_SECONDS = 0.5
CONNECTIONS, MOST_CONNECTIONS = 4, 64
WORKERS_A_CONNECTION = 100
# However far off the next act is, the clock is looked at again.
MOST_SECONDS = 1.0
_log = logging.getLogger(__name__)


async def keep_beating(
    scenario: Scenario, *, port: int, key: str, seconds: Callable[[], float]
) -> None:
    """Send what the scenario says when it says so, for ever; `seconds` is the story's time."""
    wanted = max(CONNECTIONS, len(scenario.members) // WORKERS_A_CONNECTION)
    lanes = [Lane(port, key) for _ in range(min(wanted, MOST_CONNECTIONS))]
    async with asyncio.TaskGroup() as tasks:
        for lane in lanes:
            tasks.create_task(lane.run())
        while True:
            for sent in scenario.until(seconds()):
                # All of one worker's on one connection, so that they stay in order.
                lanes[crc32(sent.process[0].encode()) % len(lanes)].offer(sent)
            await asyncio.sleep(min(max(0.0, scenario.next_at() - seconds()), MOST_SECONDS))


class Lane:
    """One connection, and what waits for it.

    That is at most one beat a process: where the collector is slow, a newer one takes its place.
    """

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key
        self._waiting: dict[tuple[str, int], Sent] = {}
        self._arrived = asyncio.Event()

    def offer(self, sent: Sent) -> None:
        self._waiting[sent.process] = sent
        self._arrived.set()

    async def run(self) -> None:
        while True:
            try:
                await self._talk()
            except (OSError, EOFError, ValueError, LookupError):
                # The next connection sends what waits.
                await asyncio.sleep(RETRY_SECONDS)

    async def _talk(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while True:
                await self._arrived.wait()
                while self._waiting:
                    sent = self._waiting.pop(next(iter(self._waiting)))
                    writer.write(self._request(sent))
                    status = await _status(reader)
                    if status != 202:
                        _log.warning("a beat of the demo was answered with %d", status)
                self._arrived.clear()
        finally:
            writer.close()

    def _request(self, sent: Sent) -> bytes:
        body = json.dumps(sent.body).encode()
        head = (
            "POST /v1/agents/heartbeat HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Authorization: Bearer {self._key}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        return "\r\n".join((*head, "", "")).encode() + body


async def _status(reader: asyncio.StreamReader) -> int:
    """The status of the next answer, which is read to its end."""
    first, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(each.lower().split(": ", 1) for each in fields if each)
    await reader.readexactly(int(headers["content-length"]))
    return int(first.split()[1])
