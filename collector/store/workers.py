"""Reading workers, and finding the silent ones."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, or_, select, tuple_

from collector.store.schema import workers
from collector.values import TTL, Group, RosterQuery, Silent, Worker

_c = workers.c
_HALF = 2**32
_WORKERS = select(*(_c[field] for field in Worker._fields))


def roster(conn: Connection, tenant_id: str, query: RosterQuery, now: int) -> list[Worker]:
    statement = _WORKERS.where(_c.tenant_id == tenant_id, *_matching(query, now))
    # The driver's own rows, all at once: a large roster has many.
    return list(map(Worker._make, conn.execute(_ordered(statement, query)).cursor.fetchall()))


def has_more(conn: Connection, tenant_id: str, than: int) -> bool:
    some = select(_c.agent_id).where(_c.tenant_id == tenant_id).limit(than + 1).subquery()
    return bool(conn.execute(select(func.count()).select_from(some)).scalar_one() > than)


def worker(conn: Connection, tenant_id: str, agent_id: str) -> Worker | None:
    row = conn.execute(
        _WORKERS.where(_c.tenant_id == tenant_id, _c.agent_id == agent_id)
    ).one_or_none()
    return None if row is None else Worker._make(row)


def summary(conn: Connection, tenant_id: str, now: int) -> list[Group]:
    offline = _reads_as("offline", now)
    status = case((offline, "offline"), else_=_c.status).label("reads_as")
    # In two halves: a sum of 64-bit numbers would overflow on one store and not on the other.
    low = func.sum(case((offline, 0), else_=_c.active_sessions % _HALF))
    high = func.sum(case((offline, 0), else_=_c.active_sessions // _HALF))
    rows = conn.execute(
        select(_c.agent_name, status, func.count(), low, high)
        .where(_c.tenant_id == tenant_id)
        .group_by(_c.agent_name, status)
        .order_by(_c.agent_name, status)
    )
    return [
        Group(name, reads_as, count, int(below) + int(above) * _HALF)
        for name, reads_as, count, below, above in rows
    ]


def live(conn: Connection, now: int) -> dict[str, int]:
    alive = and_(_c.status != "offline", _c.last_seen >= now - TTL)
    counted = select(_c.tenant_id, func.count().label("live")).where(alive).group_by(_c.tenant_id)
    return {row.tenant_id: row.live for row in conn.execute(counted)}


def forgettable(conn: Connection, before: int, limit: int) -> list[Silent]:
    rows = conn.execute(
        select(_c.tenant_id, _c.agent_id, _c.last_seen)
        .where(_c.last_seen < before)
        .order_by(_c.tenant_id, _c.agent_id)
        .limit(limit)
    )
    return list(map(Silent._make, rows))


def silent(conn: Connection, before: int, limit: int) -> list[Silent]:
    rows = conn.execute(
        select(_c.tenant_id, _c.agent_id, _c.last_seen)
        .where(_c.reported == "online", _c.last_seen < before)
        .order_by(_c.tenant_id, _c.agent_id)
        .limit(limit)
    )
    return list(map(Silent._make, rows))


def _ordered(
    statement: Select[tuple[object, ...]], query: RosterQuery
) -> Select[tuple[object, ...]]:
    if query.limit is None:
        return statement.order_by(_c.last_seen.desc(), _c.agent_id)
    if query.after is not None:
        place = tuple_(_c.first_seen, _c.agent_id)
        statement = statement.where(place < (query.after.first_seen, query.after.agent_id))
    return statement.order_by(_c.first_seen.desc(), _c.agent_id.desc()).limit(query.limit)


def _matching(query: RosterQuery, now: int) -> list[ColumnElement[bool]]:
    equal = {"agent_name": query.agent_name, "project": query.project, "region": query.region}
    conditions = [_c[name] == value for name, value in equal.items() if value is not None]
    if query.statuses:
        conditions.append(or_(*(_reads_as(status, now) for status in query.statuses)))
    if query.seen_since is not None:
        conditions.append(_c.last_seen >= query.seen_since)
    if query.seen_before is not None:
        conditions.append(_c.last_seen < query.seen_before)
    return conditions


def _reads_as(status: str, now: int) -> ColumnElement[bool]:
    """`workers.liveness` in SQL: conformance of the two is a test."""
    if status == "offline":
        return or_(_c.status == "offline", _c.last_seen < now - TTL)
    return and_(_c.status == status, _c.last_seen >= now - TTL)
