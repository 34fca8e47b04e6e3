"""The tenants' logs, read back and cut; how lines come to be is in `telling`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    FromClause,
    Select,
    and_,
    cast,
    delete,
    func,
    literal,
    select,
    true,
)

from collector.store.schema import event_counters, events, log_epoch
from collector.values import Event, Position

_c = events.c
_LINE = (_c.n, _c.type, _c.at, _c.reason, _c.agent_id, _c.worker)


def position(conn: Connection, tenant_id: str) -> Position:
    epoch = conn.execute(select(log_epoch.c.epoch)).scalar_one()
    newest = select(event_counters.c.n).where(event_counters.c.tenant_id == tenant_id)
    head = conn.execute(newest).scalar() or 0
    oldest = select(func.min(events.c.n)).where(events.c.tenant_id == tenant_id)
    floor = conn.execute(oldest).scalar_one()
    return Position(epoch, head + 1 if floor is None else floor, head)


def read(conn: Connection, tenant_id: str, after: int, limit: int) -> list[Event]:
    of_tenant = (_c.tenant_id == tenant_id, _c.n > after)
    return _lines(conn, select(*_LINE).where(*of_tenant).order_by(_c.n).limit(limit))


def news(conn: Connection, heads: Mapping[str, int], limit: int) -> dict[str, list[Event]]:
    """One statement whatever the number of tenants: they come as one JSON object.

    Everybody's next line comes before anybody's second: a long log makes no other one wait.
    """
    found: dict[str, list[Event]] = {}
    for tenant_id, *line in conn.execute(_news(conn.dialect.name, heads, limit)):
        found.setdefault(tenant_id, []).append(_line(line))
    return found


def _news(dialect: str, heads: Mapping[str, int], limit: int) -> Select[Any]:
    each = func.json_each_text if dialect == "postgresql" else func.json_each
    known = each(literal(dict(heads), JSON)).table_valued("key", "value")
    head = cast(known.c.value, BigInteger)
    is_news = and_(_c.tenant_id == known.c.key, _c.n > head)
    lines: FromClause = events
    if dialect == "postgresql":
        # Each log by its key, as SQLite does anyway: else all that is kept of all tenants is read.
        lines = select(events).where(is_news).order_by(_c.n).limit(limit).lateral()
        is_news = true()
    return (
        select(lines.c.tenant_id, *(lines.c[column.name] for column in _LINE))
        .join_from(known, lines, is_news)
        .order_by(lines.c.n - head, lines.c.tenant_id)
        .limit(limit)
    )


def of_worker(
    conn: Connection, tenant_id: str, agent_id: str, since: int, limit: int
) -> list[Event]:
    of_worker = (_c.tenant_id == tenant_id, _c.agent_id == agent_id, _c.at >= since)
    newest = select(*_LINE).where(*of_worker).order_by(_c.n.desc()).limit(limit)
    return _lines(conn, newest)[::-1]


def prune(conn: Connection, before: int, keep: int, limit: int) -> int:
    """Cut each log from its old end, so that what is left has no holes.

    Only the old ends are looked at, by the key: a beat on the embedded store waits for this.
    """
    pruned = 0
    for tenant_id, spare in _overgrown(conn, before, keep):
        if pruned < limit:
            pruned += _cut(conn, tenant_id, before, spare, limit - pruned)
    return pruned


def _cut(conn: Connection, tenant_id: str, before: int, spare: int, limit: int) -> int:
    of_tenant = select(_c.n, _c.at).where(_c.tenant_id == tenant_id)
    oldest = conn.execute(of_tenant.order_by(_c.n).limit(limit)).all()
    gone = [n for n, _ in takewhile(lambda line: line.at < before or line.n <= spare, oldest)]
    if not gone:
        return 0
    return conn.execute(delete(events).where(_c.tenant_id == tenant_id, _c.n <= gone[-1])).rowcount


def _overgrown(conn: Connection, before: int, keep: int) -> list[tuple[str, int]]:
    """Tenants whose oldest line may go, each with the last number that is too many."""
    c = event_counters.c
    oldest = select(_c.n).where(_c.tenant_id == c.tenant_id).order_by(_c.n).limit(1)
    dated = oldest.with_only_columns(_c.at)
    rows = conn.execute(
        select(c.tenant_id, c.n, oldest.scalar_subquery(), dated.scalar_subquery()).order_by(
            c.tenant_id
        )
    )
    return [
        (tenant_id, head - keep)
        for tenant_id, head, n, at in rows
        if n is not None and (at < before or n <= head - keep)
    ]


def _lines(conn: Connection, statement: Select[Any]) -> list[Event]:
    return [_line(row) for row in conn.execute(statement)]


def _line(row: Sequence[Any]) -> Event:
    *line, worker = row
    return Event._make((*line, json.loads(worker)))
