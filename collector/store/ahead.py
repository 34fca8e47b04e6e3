"""Stamps ahead of now, which some wrong clock made: how many there are, and their end.

A stamp more than STAMP_AHEAD_SECONDS ahead is a fault. Until its time comes, it would keep a silent
worker alive and hold every announcement back.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, case, delete, func, or_, select, tuple_, update

from collector.store.schema import collectors, gaps, workers
from collector.values import SECOND, TTL, Ahead
from contract.vocabulary import BEAT_SECONDS, STAMP_AHEAD_SECONDS

AHEAD = STAMP_AHEAD_SECONDS * SECOND
_w = workers.c


def read(conn: Connection, now: int) -> Ahead:
    limit = now + AHEAD
    of_workers = _counted(conn, _are_ahead(limit), _w.last_seen)
    of_gaps = _counted(conn, gaps.c.ended_at > limit, gaps.c.ended_at)
    of_collectors = _counted(conn, collectors.c.last_seen > limit, collectors.c.last_seen)
    latest = max(newest for _, newest in (of_workers, of_gaps, of_collectors))
    return Ahead(of_workers[0], of_gaps[0], of_collectors[0], max(0, latest - now))


def mend(conn: Connection, now: int, limit: int) -> int:
    """See `Store.mend`."""
    past = now + AHEAD
    conn.execute(delete(gaps).where(gaps.c.began_at >= now, gaps.c.ended_at > past))
    conn.execute(update(gaps).where(gaps.c.ended_at > past).values(ended_at=now))
    conn.execute(update(collectors).where(collectors.c.last_seen > past).values(last_seen=now))
    return _pull_back(conn, now, past, limit)


def _pull_back(conn: Connection, now: int, past: int, limit: int) -> int:
    key = tuple_(_w.tenant_id, _w.agent_id)
    # In key order, as every writer of this store takes its row locks; who holds a row writes it.
    found = (
        select(_w.tenant_id, _w.agent_id)
        .where(_are_ahead(past))
        .order_by(_w.tenant_id, _w.agent_id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    # One that was lost stays so; all others get the time that is left one beat after a beat.
    back = case((_w.reported == "lost", now - TTL - 1), else_=now - BEAT_SECONDS * SECOND)
    seen = case((_w.last_seen > past, back), else_=_w.last_seen)
    return conn.execute(
        update(workers)
        .where(key.in_(found))
        .values(
            last_seen=seen,
            online_from=_at_most(_w.online_from, seen),
            conflict_seen=_at_most(_w.conflict_seen, seen),
        )
    ).rowcount


def _are_ahead(limit: int) -> ColumnElement[bool]:
    """A beat that overwrote a stamp ahead left what the stamp had begun."""
    return or_(_w.last_seen > limit, _w.online_from > limit, _w.conflict_seen > limit)


def _at_most(column: Any, bound: Any) -> Any:
    return case((column > bound, bound), else_=column)


def _counted(conn: Connection, condition: ColumnElement[bool], stamp: Any) -> tuple[int, int]:
    """How many there are, and the latest of their stamps."""
    found = conn.execute(select(func.count(), func.max(stamp)).where(condition)).one()
    return int(found[0]), int(found[1] or 0)
