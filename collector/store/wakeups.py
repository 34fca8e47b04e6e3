"""Wake-ups between collectors on PostgreSQL. They only wake: the tables tell.

NOTIFY takes a lock that all committing writers share, so it is never part of a commit: what changed
is gathered and said in a transaction of its own, at most ten times a second. A lost wake-up costs
a second at most, because readers also poll.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from collector.store.bounds import CLOSE_SECONDS

CHANNEL = "collector_changes"
PAUSE_SECONDS = 0.1
RECONNECT_SECONDS = 1.0
# PostgreSQL refuses payloads of 8,000 bytes; past this everybody looks for themselves.
MAX_PAYLOAD = 7_000

Tell = Callable[[frozenset[str]], None]
_log = logging.getLogger(__name__)


class Wakeups:
    """One direct connection a process: it says what we changed and hears what others did."""

    def __init__(self, url: str, tell: Tell) -> None:
        self._url = url
        self._tell = tell
        self._changed: set[str] = set()
        self._to_say = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._run(), name="wakeups")

    async def close(self) -> None:
        """End in order: a connection that is cancelled while it is made complains afterwards.

        One that does not end in time is cancelled all the same.
        """
        if self._task is not None:
            self._closing.set()
            self._to_say.set()
            _, hanging = await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
            for each in hanging:
                each.cancel()
        self._task = None

    def say(self, tenants: frozenset[str]) -> None:
        """Let the other collectors know, soon; what nobody can say yet is not kept for ever."""
        if self._task is not None:
            self._changed |= tenants
            self._to_say.set()

    async def _run(self) -> None:
        while not self._closing.is_set():
            try:
                await self._converse()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                _log.warning("wake-ups are off, polling goes on: %s", error)
                self._changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), RECONNECT_SECONDS)

    async def _converse(self) -> None:
        connection = await asyncpg.connect(self._url, timeout=5, command_timeout=5)
        try:
            own = connection.get_server_pid()
            await connection.add_listener(
                CHANNEL, lambda _c, pid, _n, payload: self._hear(payload) if pid != own else None
            )
            # A lost connection ends the wait like something to say does; saying then fails.
            connection.add_termination_listener(lambda _connection: self._to_say.set())
            while not self._closing.is_set():
                await self._say(connection)
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            connection.terminate()

    async def _say(self, connection: asyncpg.Connection) -> None:
        await self._to_say.wait()
        self._to_say.clear()
        tenants, self._changed = self._changed, set()
        if not self._closing.is_set():
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, _payload(tenants))

    def _hear(self, payload: str) -> None:
        self._tell(frozenset(json.loads(payload)))


def _payload(tenants: set[str]) -> str:
    """The tenants, or none of them: then a listener waits for its poll."""
    payload = json.dumps(sorted(tenants))
    return payload if len(payload) <= MAX_PAYLOAD else "[]"
