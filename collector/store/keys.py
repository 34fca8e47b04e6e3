"""Keys at rest, and the revision that tells the processes that one changed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, func, or_, select, update

from collector.errors import NotActive, QuotaExceeded, Unauthenticated
from collector.store import audit
from collector.store.protocol import OPERATOR
from collector.store.schema import key_revision, keys
from collector.values import SECOND, Act, Key, KeyChanges
from contract.vocabulary import Scope

# Whose the ids of a removed tenant's keys are: no tenant's name is empty.
NOBODY = ""
# Within what one statement takes of values: 32,766 on SQLite, one more on PostgreSQL.
CHUNK = 10_000
_COLUMNS = tuple(column.name for column in keys.c)


def add(conn: Connection, key: Key, by: str, most: int) -> bool:
    revision = next_revision(conn)
    _check_actor(conn, by, key.created_at)
    if not _insert(conn, key, revision):
        return False
    _check_quota(conn, key, most)
    audit.write(conn, key.tenant_id, key.created_at, Act("key.created", key.id, by, _facts(key)))
    return True


def replace(
    conn: Connection, key_id: str, successor: Key, expires_at: int, by: str, most: int
) -> bool:
    """The successor now, and an end for the key that it replaces."""
    revision = next_revision(conn)
    _check_actor(conn, by, successor.created_at)
    if not _insert(conn, successor, revision):
        return False
    ends_sooner = case((keys.c.expires_at < expires_at, keys.c.expires_at), else_=expires_at)
    replaced = (
        update(keys)
        .where(
            keys.c.id == key_id,
            keys.c.tenant_id == successor.tenant_id,
            keys.c.successor_id.is_(None),
            is_active(successor.created_at),
        )
        .values(expires_at=ends_sooner, successor_id=successor.id, revision=revision)
    )
    if not conn.execute(replaced).rowcount:
        raise NotActive(f"Key {key_id} is no longer active, or was rotated already.")
    _check_quota(conn, successor, most)
    detail = {**_facts(successor), "successor": successor.id, "expires_at": expires_at / SECOND}
    act = Act("key.rotated", key_id, by, detail)
    audit.write(conn, successor.tenant_id, successor.created_at, act)
    return True


def active(conn: Connection, tenant_id: str, now: int) -> int:
    """How many of the tenant's keys open anything."""
    open_ones = select(func.count()).where(keys.c.tenant_id == tenant_id, is_active(now))
    return conn.execute(open_ones).scalar_one()


def is_active(now: int) -> ColumnElement[bool]:
    """Whether the row is of a key that opens anything at that moment."""
    goes_on = or_(keys.c.expires_at.is_(None), keys.c.expires_at > now)
    return and_(keys.c.revoked_at.is_(None), goes_on)


def _check_actor(conn: Connection, by: str, now: int) -> None:
    """A collector may believe in a key for a moment after its end: it makes no other key then."""
    acting = select(keys.c.id).where(keys.c.id == by, is_active(now))
    if by != OPERATOR and conn.execute(acting).one_or_none() is None:
        raise Unauthenticated("The key is revoked or expired.")


def _check_quota(conn: Connection, key: Key, most: int) -> None:
    """With the new key counted, and under the revision's lock: nobody slips in between."""
    if most and active(conn, key.tenant_id, key.created_at) > most:
        raise QuotaExceeded.of_keys(most)


def use(conn: Connection, key_ids: Collection[str], now: int) -> None:
    """Not a change of the keys: nobody has to hear of it."""
    unused = or_(keys.c.last_used_at.is_(None), keys.c.last_used_at < now)
    noted = update(keys).where(unused, keys.c.tenant_id != NOBODY).values(last_used_at=now)
    # In order, so that collectors that note the same keys at once seldom get in each other's way.
    ordered = sorted(key_ids)
    for start in range(0, len(ordered), CHUNK):
        conn.execute(noted.where(keys.c.id.in_(ordered[start : start + CHUNK])))


def _insert(conn: Connection, key: Key, revision: int) -> bool:
    taken = select(keys.c.id).where(keys.c.id == key.id)
    if conn.execute(taken).one_or_none() is not None:
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
            successor_id=key.successor_id,
            revision=revision,
        )
    )
    return True


def find(conn: Connection, key_ids: Collection[str]) -> dict[str, Key]:
    known = select(keys).where(keys.c.id.in_(key_ids), keys.c.tenant_id != NOBODY)
    return {row["id"]: key_of(row) for row in conn.execute(known).mappings()}


def every(conn: Connection, tenant_id: str | None) -> list[Key]:
    statement = select(keys).order_by(keys.c.created_at, keys.c.id)
    whose = keys.c.tenant_id != NOBODY if tenant_id is None else keys.c.tenant_id == tenant_id
    return [key_of(row) for row in conn.execute(statement.where(whose)).mappings()]


def revoke(conn: Connection, tenant_id: str, key_id: str, now: int, by: str) -> bool:
    """The conditional update decides; what is read after it only tells why it changed nothing."""
    revision = next_revision(conn)
    own = and_(keys.c.id == key_id, keys.c.tenant_id == tenant_id)
    revoked = update(keys).where(own, keys.c.revoked_at.is_(None))
    if conn.execute(revoked.values(revoked_at=now, revision=revision)).rowcount:
        audit.write(conn, tenant_id, now, Act("key.revoked", key_id, by))
        return True
    return conn.execute(select(keys.c.id).where(own)).one_or_none() is not None


def revoke_all(conn: Connection, tenant_id: str, now: int, by: str) -> int:
    """Those of the tenant that are not revoked yet, each an act of its own."""
    revision = next_revision(conn)
    open_ones = update(keys).where(keys.c.tenant_id == tenant_id, keys.c.revoked_at.is_(None))
    revoked = open_ones.values(revoked_at=now, revision=revision).returning(keys.c.id)
    key_ids = sorted(conn.execute(revoked).scalars())
    for key_id in key_ids:
        audit.write(conn, tenant_id, now, Act("key.revoked", key_id, by))
    return len(key_ids)


def bury(conn: Connection, tenant_id: str, now: int) -> int:
    """Leave nothing of the tenant's keys but that they are revoked, for who still knows them."""
    nothing = {"name": None, "expires_at": None, "last_used_at": None, "successor_id": None}
    buried = update(keys).where(keys.c.tenant_id == tenant_id)
    return conn.execute(
        buried.values(
            tenant_id=NOBODY,
            digest="",
            scopes="",
            revoked_at=now,
            revision=next_revision(conn),
            **nothing,
        )
    ).rowcount


def changes(conn: Connection, since: int) -> KeyChanges:
    revision = conn.execute(select(key_revision.c.revision)).scalar_one()
    if revision == since:
        return KeyChanges(revision, frozenset(), frozenset())
    c = keys.c
    changed = select(c.id, c.revoked_at, c.expires_at, c.successor_id).where(c.revision > since)
    rows = conn.execute(changed).all()
    revoked = frozenset(row.id for row in rows if row.revoked_at is not None)
    rotated = (row for row in rows if row.id not in revoked and row.successor_id is not None)
    ends = {row.id: row.expires_at for row in rotated}
    return KeyChanges(revision, frozenset(row.id for row in rows), revoked, ends)


def next_revision(conn: Connection) -> int:
    """Taken first: its row's lock puts all changes of keys in one order."""
    bumped = update(key_revision).values(revision=key_revision.c.revision + 1)
    return cast(int, conn.execute(bumped.returning(key_revision.c.revision)).scalar_one())


def _facts(key: Key) -> dict[str, object]:
    ends = None if key.expires_at is None else key.expires_at / SECOND
    return {"scopes": list(key.scopes), "name": key.name, "expires_at": ends}


def key_of(row: RowMapping) -> Key:
    """The key of a row that has its columns, whatever else it has."""
    fields: dict[str, Any] = {name: row[name] for name in _COLUMNS if name != "revision"}
    scopes = cast("tuple[Scope, ...]", tuple(row["scopes"].split(",")))
    return Key(**{**fields, "scopes": scopes})
