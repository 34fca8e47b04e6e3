"""Keys at rest, and the revision that tells the processes that one changed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from sqlalchemy import Connection, RowMapping, or_, select, update

from collector.store import audit
from collector.store.schema import key_revision, keys
from collector.values import SECOND, Act, Key, KeyChanges
from contract.vocabulary import Scope


def add(conn: Connection, key: Key, by: str) -> bool:
    revision = next_revision(conn)
    if not _insert(conn, key, revision):
        return False
    audit.write(conn, key.tenant_id, key.created_at, Act("key.created", key.id, by, _facts(key)))
    return True


def replace(conn: Connection, key_id: str, successor: Key, expires_at: int, by: str) -> bool:
    """The successor now, and an end for the key that it replaces."""
    revision = next_revision(conn)
    if not _insert(conn, successor, revision):
        return False
    ends_later = or_(keys.c.expires_at.is_(None), keys.c.expires_at > expires_at)
    conn.execute(
        update(keys)
        .where(keys.c.id == key_id, ends_later)
        .values(expires_at=expires_at, revision=revision)
    )
    detail = {**_facts(successor), "successor": successor.id, "expires_at": expires_at / SECOND}
    act = Act("key.rotated", key_id, by, detail)
    audit.write(conn, successor.tenant_id, successor.created_at, act)
    return True


def use(conn: Connection, key_ids: Collection[str], now: int) -> None:
    """Not a change of the keys: nobody has to hear of it."""
    unused = or_(keys.c.last_used_at.is_(None), keys.c.last_used_at < now)
    conn.execute(update(keys).where(keys.c.id.in_(key_ids), unused).values(last_used_at=now))


def _insert(conn: Connection, key: Key, revision: int) -> bool:
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
            expires_at=key.expires_at,
            last_used_at=key.last_used_at,
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


def revoke(conn: Connection, key_id: str, now: int, by: str) -> bool:
    revision = next_revision(conn)
    key = find(conn, key_id)
    if key is None or key.revoked_at is not None:
        return key is not None
    conn.execute(update(keys).where(keys.c.id == key_id).values(revoked_at=now, revision=revision))
    audit.write(conn, key.tenant_id, now, Act("key.revoked", key_id, by))
    return True


def changes(conn: Connection, since: int) -> KeyChanges:
    revision = conn.execute(select(key_revision.c.revision)).scalar_one()
    if revision == since:
        return KeyChanges(revision, frozenset(), frozenset())
    changed = select(keys.c.id, keys.c.revoked_at).where(keys.c.revision > since)
    rows = conn.execute(changed).all()
    revoked = frozenset(row.id for row in rows if row.revoked_at is not None)
    return KeyChanges(revision, frozenset(row.id for row in rows), revoked)


def next_revision(conn: Connection) -> int:
    """Taken first: its row's lock puts all changes of keys in one order."""
    bumped = update(key_revision).values(revision=key_revision.c.revision + 1)
    return cast(int, conn.execute(bumped.returning(key_revision.c.revision)).scalar_one())


def _facts(key: Key) -> dict[str, object]:
    ends = None if key.expires_at is None else key.expires_at / SECOND
    return {"scopes": list(key.scopes), "name": key.name, "expires_at": ends}


def _key(row: RowMapping) -> Key:
    fields: dict[str, Any] = {name: row[name] for name in row if name != "revision"}
    scopes = cast("tuple[Scope, ...]", tuple(row["scopes"].split(",")))
    return Key(**{**fields, "scopes": scopes})
