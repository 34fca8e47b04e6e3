"""The roster without a collector: the store's driver, the same SELECT, and the same encoder.

Garbage is collected as seldom as in the collector.
"""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Sequence
from typing import Any, Protocol

import asyncpg
from pydantic_core import to_json
from sqlalchemy import make_url

from collector.cli.serve import COLLECT_AFTER
from collector.values import Worker

FIELDS = Worker._fields
SELECT = f"SELECT {', '.join(FIELDS)} FROM workers WHERE tenant_id = $1"
WHOLE = f"{SELECT} ORDER BY last_seen DESC, agent_id"
_IN_WALKING_ORDER = "ORDER BY first_seen DESC, agent_id DESC LIMIT"
FIRST_PAGE = f"{SELECT} {_IN_WALKING_ORDER} $2"
NEXT_PAGE = f"{SELECT} AND (first_seen, agent_id) < ($2, $3) {_IN_WALKING_ORDER} $4"

Rows = Sequence[Any]


class Reader(Protocol):
    async def read(self, sql: str, *values: object) -> Rows: ...

    async def close(self) -> None: ...


class SqliteReader:
    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path)

    async def read(self, sql: str, *values: object) -> Rows:
        return self._connection.execute(sql.replace("$", "?"), values).fetchall()

    async def close(self) -> None:
        self._connection.close()


class PostgresReader:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def read(self, sql: str, *values: object) -> Rows:
        rows: Rows = await self._connection.fetch(sql, *values)
        return rows

    async def close(self) -> None:
        await self._connection.close()


async def reader(url: str) -> Reader:
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return SqliteReader(str(parsed.database))
    dsn = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    return PostgresReader(await asyncpg.connect(dsn))


async def whole(store: Reader, tenant_id: str) -> int:
    """How many workers there were."""
    return len(_encoded(await store.read(WHOLE, tenant_id)))


async def walked(store: Reader, tenant_id: str, size: int) -> int:
    """The same, page after page."""
    rows, count = await store.read(FIRST_PAGE, tenant_id, size), 0
    while rows:
        count += len(_encoded(rows))
        last = dict(zip(FIELDS, rows[-1], strict=True))
        place = (last["first_seen"], last["agent_id"])
        rows = await store.read(NEXT_PAGE, tenant_id, *place, size)
    return count


def _encoded(rows: Rows) -> Rows:
    to_json({"workers": [dict(zip(FIELDS, row, strict=True)) for row in rows]})
    return rows
