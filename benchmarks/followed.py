"""The collector that `benchmarks.feed` follows: `python -m benchmarks.followed VARIANT BASE`.

It is what users run, but for its clock, which goes fifteen times as fast: the 45 s after which a
worker counts as lost pass in three. The variants `sequence` and `apart` have one defect each,
which the proof has to be able to see.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, cast

from sqlalchemy import Connection, func, select
from starlette.types import ASGIApp

from benchmarks.exchange import serve
from collector import gaps, sweep
from collector.app import create_app
from collector.settings import Settings
from collector.store import cloud, events, schema, telling
from collector.store.protocol import Store
from collector.values import Position, RosterQuery, Worker

SPEED = 15
# In `apart`, how long the roster of a snapshot is older than its cursor.
APART_SECONDS = 0.3
# In `sequence`, how long a line is numbered before it is committed, at most.
LATE_SECONDS = 0.02
# The sequence that numbers a tenant's lines; whoever makes the store makes it.
SEQUENCE = "lines_"


class FastClock:
    """The wall clock from `base` on, but faster; alike in all processes that have the same base."""

    def __init__(self, base: int) -> None:
        self._base = base

    def now(self) -> int:
        return self._base + (time.time_ns() // 1000 - self._base) * SPEED

    def skew(self) -> int:
        return 0

    def anchor(self, reading: int) -> None:
        """The store's clock is slower: it is left alone."""


def hasten() -> None:
    """Listen and sweep faster too; else the collector would miss its own beats by its own clock."""
    gaps.LISTEN_EVERY_SECONDS /= SPEED
    sweep.TICK_SECONDS /= SPEED


def honest(store: Store) -> Store:
    return store


def sequence(store: Store) -> Store:
    """Lines are numbered as they are written, in no order with their commits."""
    cloud.COMMIT = _numbered_by_sequence(cloud.COMMIT)
    cloud.ANNOUNCE_LOST = _numbered_by_sequence(cloud.ANNOUNCE_LOST)
    events.position = _position
    return store


def _numbered_by_sequence(sql: str) -> str:
    told = " RETURNING tenant_id"
    exchanged = {
        f"{telling.BUMP} RETURNING tenant_id, n": "SELECT DISTINCT tenant_id FROM told",
        "c.n - l.total + l.k": f"nextval(quote_ident('{SEQUENCE}' || l.tenant_id))",
    }
    for ours, theirs in exchanged.items():
        assert ours in sql, f"the statement has no {ours!r} any more"
        sql = sql.replace(ours, theirs)
    assert sql.endswith(told)
    return f"{sql}, pg_sleep(random() * {LATE_SECONDS})"


def _position(conn: Connection, tenant_id: str) -> Position:
    """Where the log stands, with no counter to say it."""
    n = schema.events.c.n
    ends = select(func.min(n), func.max(n)).where(schema.events.c.tenant_id == tenant_id)
    floor, head = conn.execute(ends).one()
    epoch = conn.execute(select(schema.log_epoch.c.epoch)).scalar_one()
    return Position(epoch, floor or 1, head or 0)


class Apart:
    """A store whose snapshot is two readings; what changes in between is in neither."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def snapshot(
        self, tenant_id: str, query: RosterQuery, *, now: int
    ) -> tuple[list[Worker], Position]:
        workers = await self._store.roster(tenant_id, query, now=now)
        await asyncio.sleep(APART_SECONDS)
        return workers, await self._store.position(tenant_id)


def apart(store: Store) -> Store:
    return cast(Store, Apart(store))


VARIANTS: dict[str, Callable[[Store], Store]] = {
    "honest": honest,
    "sequence": sequence,
    "apart": apart,
}


def main(variant: str, base: str) -> None:
    hasten()

    def build(settings: Settings, store: Store) -> ASGIApp:
        return create_app(settings, store=VARIANTS[variant](store), clock=FastClock(int(base)))

    serve(build)


if __name__ == "__main__":
    main(*sys.argv[1:])
