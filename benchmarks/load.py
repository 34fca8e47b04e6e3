"""Beats from many keep-alive connections, each with an agent_id never used before.

Every connection sends its next beat when the last one is answered, so the load is bounded by the
number of connections.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

PATIENCE_SECONDS = 30
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

Address = tuple[str, int]
Beaten = tuple[str, str]  # tenant and agent_id


class Load:
    """Runs while its `async with` block does, against whatever server it is aimed at."""

    def __init__(self, keys: Mapping[str, str], *, connections: int) -> None:
        self.sent = 0
        self.refused = 0
        # Those whose 202 was read to its last byte.
        self.acknowledged: set[Beaten] = set()
        self._keys = list(keys.items())
        self._size = connections
        self._numbers = itertools.count(1)
        self._address: Address | None = None
        self._aimed = asyncio.Event()
        self._flowing = asyncio.Event()
        self._open = 0
        self._all_closed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._connect_for_ever(n)) for n in range(self._size)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def aim(self, address: Address) -> None:
        """Send beats there; return when the first is acknowledged."""
        self._address = address
        self._flowing.clear()
        self._aimed.set()
        await asyncio.wait_for(self._flowing.wait(), PATIENCE_SECONDS)

    def lower(self) -> None:
        """Connect to nothing until aimed again; connections go on until they are cut."""
        self._aimed.clear()

    async def drain(self) -> None:
        """Wait until every cut connection has read what its server still managed to answer."""
        if self._open:
            self._all_closed.clear()
            await asyncio.wait_for(self._all_closed.wait(), PATIENCE_SECONDS)

    async def _connect_for_ever(self, number: int) -> None:
        tenant, key = self._keys[number % len(self._keys)]
        while True:
            await self._aimed.wait()
            assert self._address is not None
            self._open += 1
            # Cut while it waited for an answer: that beat may or may not have been committed.
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._beat_until_cut(self._address, tenant, key)
            self._open -= 1
            if not self._open:
                self._all_closed.set()

    async def _beat_until_cut(self, address: Address, tenant: str, key: str) -> None:
        reader, writer = await asyncio.open_connection(*address)
        try:
            while True:
                agent_id = f"worker-{next(self._numbers)}"
                self.sent += 1
                if await beat(reader, writer, key, agent_id) == 202:
                    self.acknowledged.add((tenant, agent_id))
                    self._flowing.set()
                else:
                    self.refused += 1
        finally:
            writer.close()


async def beat(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, agent_id: str
) -> int:
    """Send one beat; its status, once the whole answer is read."""
    body = {"agent_id": agent_id, "agent_name": "load", "status": "idle"}
    return await send(reader, writer, key, body)


async def send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, fields: Mapping[str, Any]
) -> int:
    """The same with any fields."""
    body = json.dumps(fields)
    request = (
        "POST /v1/agents/heartbeat HTTP/1.1\r\nHost: collector\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    return await ask(reader, writer, request.encode())


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """The status of the answer, once all of it is read."""
    return (await answer(reader, writer, request))[0]


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    """The status and the body."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    assert length is not None
    return int(head[9:12]), await reader.readexactly(int(length[1]))
