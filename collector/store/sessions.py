"""Sessions at rest: a token's digest, whose key it stands for, and until when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, delete, or_, select

from collector.errors import Unauthenticated
from collector.store import keys
from collector.store.schema import keys as key_table
from collector.store.schema import sessions
from collector.values import Key, Session


def add(conn: Connection, session: Session, most: int) -> bool:
    """Under the key's row lock: neither the key's end nor another session slips in between."""
    held = select(key_table.c.id).where(
        key_table.c.id == session.key_id,
        key_table.c.tenant_id == session.tenant_id,
        keys.is_active(session.created_at),
    )
    if conn.execute(held.with_for_update()).one_or_none() is None:
        raise Unauthenticated("The key is revoked or expired.")
    c = sessions.c
    taken = select(c.id).where(or_(c.id == session.id, c.digest == session.digest))
    if conn.execute(taken).first() is not None:
        return False
    _make_room(conn, session.key_id, most)
    conn.execute(sessions.insert().values(asdict(session)))
    return True


def _make_room(conn: Connection, key_id: str, most: int) -> None:
    c = sessions.c
    newest_first = select(c.id).where(c.key_id == key_id).order_by(c.created_at.desc(), c.id)
    conn.execute(delete(sessions).where(c.id.in_(newest_first.offset(most - 1))))


def find(conn: Connection, digest: str, now: int) -> tuple[Session, Key] | None:
    s, k = sessions.c, key_table.c
    is_its = and_(k.id == s.key_id, k.tenant_id == s.tenant_id, keys.is_active(now))
    names = {f"session_{column.name}": column for column in s}
    columns = (column.label(label) for label, column in names.items())
    found = (
        select(key_table, *columns)
        .join_from(sessions, key_table, is_its)
        .where(s.digest == digest, s.expires_at > now)
    )
    row = conn.execute(found).mappings().one_or_none()
    if row is None:
        return None
    own: dict[str, Any] = {column.name: row[label] for label, column in names.items()}
    return Session(**own), keys.key_of(row)


def of_key(conn: Connection, key_id: str, now: int) -> list[Session]:
    c = sessions.c
    lasting = select(sessions).where(c.key_id == key_id, c.expires_at > now)
    rows = conn.execute(lasting.order_by(c.created_at.desc(), c.id)).mappings()
    return [_session(row) for row in rows]


def end(conn: Connection, key_id: str, session_id: str) -> bool:
    own = (sessions.c.id == session_id, sessions.c.key_id == key_id)
    return conn.execute(delete(sessions).where(*own)).rowcount == 1


def gone(conn: Connection, session_ids: Collection[str]) -> frozenset[str]:
    asked, there = sorted(session_ids), set[str]()
    for start in range(0, len(asked), keys.CHUNK):
        some = sessions.c.id.in_(asked[start : start + keys.CHUNK])
        there.update(conn.execute(select(sessions.c.id).where(some)).scalars())
    return frozenset(asked) - there


def prune(conn: Connection, before: int, limit: int) -> int:
    old = select(sessions.c.digest).where(sessions.c.expires_at < before).limit(limit)
    return conn.execute(delete(sessions).where(sessions.c.digest.in_(old))).rowcount


def _session(row: RowMapping) -> Session:
    return Session(**row)
