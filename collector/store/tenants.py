"""Whole tenants, for the operator."""

from __future__ import annotations

from sqlalchemy import Connection, Table, delete, func, select, update

from collector.store import audit, keys
from collector.store.protocol import OPERATOR
from collector.store.schema import audit as audit_table
from collector.store.schema import event_counters, events, sessions, spells, workers
from collector.store.schema import keys as key_table
from collector.values import Act, Tenant

_DELETED: dict[str, Table] = {
    "workers": workers,
    "events": events,
    "spells": spells,
    "audit": audit_table,
}
# Keys come late, for their lock: every other change of a key waits for it. Their sessions come
# after them, so that nobody signs in between.
_ALL = {**_DELETED, "keys": key_table, "sessions": sessions}


def every(conn: Connection) -> list[Tenant]:
    """Whoever has a key or a worker, by name."""
    w, k = workers.c, key_table.c
    seen = select(w.tenant_id, func.count(), func.max(w.last_seen)).group_by(w.tenant_id)
    active = func.count().filter(k.revoked_at.is_(None))
    held = select(k.tenant_id, active).where(k.tenant_id != keys.NOBODY).group_by(k.tenant_id)
    fleets = {name: (count, newest) for name, count, newest in conn.execute(seen)}
    keyrings: dict[str, int] = {name: count for name, count in conn.execute(held)}  # noqa: C416
    return [
        Tenant(name, *fleets.get(name, (0, None)), keyrings.get(name, 0))
        for name in sorted({*fleets, *keyrings})
    ]


def holdings(conn: Connection, tenant_id: str) -> dict[str, int]:
    """How much the store has of this tenant."""
    return {
        name: conn.execute(
            select(func.count()).select_from(table).where(table.c.tenant_id == tenant_id)
        ).scalar_one()
        for name, table in _ALL.items()
    }


def lock_out(conn: Connection, tenant_id: str, now: int) -> int:
    """Revoke all its keys; the collectors let go of them within two seconds."""
    return keys.revoke_all(conn, tenant_id, now, OPERATOR)


def remove(conn: Connection, tenant_id: str, now: int, act: Act) -> dict[str, int]:
    """Everything of the tenant; what is left is that it was removed."""
    gone = {
        name: conn.execute(delete(table).where(table.c.tenant_id == tenant_id)).rowcount
        for name, table in _DELETED.items()
    }
    # Past a number that no line has, so that no cursor from before goes on in a new log.
    numbered = update(event_counters).where(event_counters.c.tenant_id == tenant_id)
    conn.execute(numbered.values(n=event_counters.c.n + 1))
    gone["keys"] = keys.bury(conn, tenant_id, now)
    signed_in = delete(sessions).where(sessions.c.tenant_id == tenant_id)
    gone["sessions"] = conn.execute(signed_in).rowcount
    audit.write(conn, tenant_id, now, act, **gone)
    return gone
