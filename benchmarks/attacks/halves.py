"""Very many connections that begin a request, or say nothing, and wait."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from benchmarks import usage
from benchmarks.besieged import Besieged, Scale

KINDS = {
    "nothing": b"",
    "half a line": b"GET /v1/age",
    "half a head": b"GET /v1/agents HTTP/1.1\r\nHost: coll",
    "half a body": (
        b"POST /v1/agents/heartbeat HTTP/1.1\r\nHost: collector\r\n"
        b'Content-Type: application/json\r\nContent-Length: 400\r\n\r\n{"agent_id":'
    ),
}
OPENING_AT_ONCE = 200
# Descriptors that this process needs for all else.
OURS = 500
# This share of all connections fits below the collector's limit.
TAKEN_IN = 0.75


class Half(asyncio.Protocol):
    """One connection, which says its piece and no more."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self.seconds: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._began = asyncio.get_running_loop().time()
        self.transport.write(self._said)

    def connection_lost(self, _error: Exception | None) -> None:
        self.seconds = asyncio.get_running_loop().time() - self._began


def settings(scale: Scale) -> Mapping[str, str]:
    return {"COLLECTOR_REQUEST_SECONDS": str(scale.request_seconds)}


def each_kind(scale: Scale) -> int:
    """Return how many are asked for, or how many this process may have open if that is less."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(scale.halves, (limit - OURS) // len(KINDS))


def descriptors(scale: Scale) -> int:
    """The attack comes to the collector's limit, and goes on."""
    return OURS + round(TAKEN_IN * len(KINDS) * each_kind(scale))


async def halves(on: Besieged) -> None:
    """All of each kind; beside them a writer dies, and has to come back at the limit."""
    deadline = on.scale.request_seconds + on.scale.slack_seconds
    async with on.others(2 * deadline):
        opened = await _open_all(on)
        on.tried += len(opened)
        on.say(f"{len(opened):,} half requests were begun")
        _kill_writers(on)
        await _wait(opened, deadline)
        _judge(on, opened, deadline)
        for each in opened:
            each.transport.abort()


async def _open_all(on: Besieged) -> list[Half]:
    opened: list[Half] = []
    turn = asyncio.Semaphore(OPENING_AT_ONCE)
    loop = asyncio.get_running_loop()

    async def open_one(said: bytes) -> None:
        async with turn:
            # At its limit a collector ends a connection as soon as it has come.
            with suppress(OSError):
                _, half = await loop.create_connection(lambda: Half(said), *on.process.address)
                opened.append(half)

    pieces = [said for said in KINDS.values() for _ in range(each_kind(on.scale))]
    await asyncio.gather(*map(open_one, pieces))
    return opened


def _kill_writers(on: Besieged) -> None:
    """SQLite's own process: a new one needs descriptors."""
    for child in usage.family(on.pid)[1:] if on.stage.kind == "selfhosted" else ():
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


async def _wait(opened: list[Half], seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while any(each.seconds is None for each in opened):
                await asyncio.sleep(0.05)


def _judge(on: Besieged, opened: list[Half], deadline: float) -> None:
    late = sum(each.seconds is None or each.seconds > deadline for each in opened)
    on.fault("ends", f"{late:,} half requests were open after {deadline:g} s", late)
    on.say(f"{len(opened) - late:,} of them were ended in time")
