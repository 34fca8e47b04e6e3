"""Keys at rest, and the revision that tells the processes that one changed."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Connection, RowMapping, select, update

from collector.store.schema import key_revision, keys
from collector.values import Key, KeyChanges
from contract.vocabulary import Scope


def add(conn: Connection, key: Key) -> bool:
    revision = _next_revision(conn)
    if find(conn, key.id) is not None:
        return False
    conn.execute(
        keys.insert().values(
            id=key.id,
            tenant_id=key.tenant_id,
            name=key.name,
            digest=key.digest,
            scopes=",".join(key.scopes),
            created_at=key.created_at,
            revoked_at=key.revoked_at,
            revision=revision,
        )
    )
    return True


def find(conn: Connection, key_id: str) -> Key | None:
    row = conn.execute(select(keys).where(keys.c.id == key_id)).mappings().one_or_none()
    return None if row is None else _key(row)


def every(conn: Connection, tenant_id: str | None) -> list[Key]:
    statement = select(keys).order_by(keys.c.created_at, keys.c.id)
    if tenant_id is not None:
        statement = statement.where(keys.c.tenant_id == tenant_id)
    return [_key(row) for row in conn.execute(statement).mappings()]


def revoke(conn: Connection, key_id: str, now: int) -> bool:
    revision = _next_revision(conn)
    revoked = conn.execute(
        update(keys)
        .where(keys.c.id == key_id, keys.c.revoked_at.is_(None))
        .values(revoked_at=now, revision=revision)
    )
    return revoked.rowcount > 0 or find(conn, key_id) is not None


def changes(conn: Connection, since: int) -> KeyChanges:
    revision = conn.execute(select(key_revision.c.revision)).scalar_one()
    if revision == since:
        return KeyChanges(revision, frozenset(), frozenset())
    changed = select(keys.c.id, keys.c.revoked_at).where(keys.c.revision > since)
    rows = conn.execute(changed).all()
    revoked = frozenset(row.id for row in rows if row.revoked_at is not None)
    return KeyChanges(revision, frozenset(row.id for row in rows), revoked)


def _next_revision(conn: Connection) -> int:
    """Taken first: its row's lock puts all changes of keys in one order."""
    bumped = update(key_revision).values(revision=key_revision.c.revision + 1)
    return cast(int, conn.execute(bumped.returning(key_revision.c.revision)).scalar_one())


def _key(row: RowMapping) -> Key:
    fields: dict[str, Any] = {name: row[name] for name in row if name != "revision"}
    scopes = cast("tuple[Scope, ...]", tuple(row["scopes"].split(",")))
    return Key(**{**fields, "scopes": scopes})
