"""Who did what: written in the transaction that does it, never changed, and cut at its old end."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from collector.store.schema import audit
from collector.values import Act, Audited

_c = audit.c

# The same by hand, for statements that are one with what they tell of.
WRITE = "INSERT INTO audit (tenant_id, at, actor, action, subject, detail)"


def write(conn: Connection, tenant_id: str, at: int, act: Act, **detail: Any) -> None:
    conn.execute(
        insert(audit).values(
            tenant_id=tenant_id,
            at=at,
            actor=act.actor,
            action=act.action,
            subject=act.subject,
            detail=json.dumps({**act.detail, **detail}),
        )
    )


def read(conn: Connection, tenant_id: str, before: int | None, limit: int) -> list[Audited]:
    statement = select(_c.id, _c.at, _c.actor, _c.action, _c.subject, _c.detail)
    if before is not None:
        statement = statement.where(_c.id < before)
    of_tenant = statement.where(_c.tenant_id == tenant_id).order_by(_c.id.desc()).limit(limit)
    return [
        Audited(row.id, row.at, row.actor, row.action, row.subject, json.loads(row.detail))
        for row in conn.execute(of_tenant)
    ]


def prune(conn: Connection, before: int, limit: int) -> int:
    """Delete in the order of the ids, so that an index bounds the rows that are looked at."""
    oldest = select(_c.id, _c.at).order_by(_c.id).limit(limit).subquery()
    # SQLite gives the highest id out anew once its row is gone.
    newest = select(func.max(audit.alias().c.id)).scalar_subquery()
    old = select(oldest.c.id).where(oldest.c.at < before, oldest.c.id < newest)
    return conn.execute(delete(audit).where(_c.id.in_(old))).rowcount
