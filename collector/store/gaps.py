"""When collectors of this store listened, and when none did."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, select, text

from collector.store.schema import collectors, gaps
from collector.values import GAP, Gap

# Several collectors may find the same gap: one records it.
_RECORD = text("""
INSERT INTO gaps (began_at, ended_at) VALUES (:began_at, :now)
ON CONFLICT (began_at) DO NOTHING""")

_BEAT = text("""
INSERT INTO collectors AS c (collector_id, last_seen) VALUES (:collector_id, :now)
ON CONFLICT (collector_id) DO UPDATE SET last_seen = excluded.last_seen
WHERE c.last_seen < excluded.last_seen""")


def listen(conn: Connection, collector_id: str, now: int) -> Gap | None:
    began_at = conn.execute(select(func.max(collectors.c.last_seen))).scalar_one()
    conn.execute(_BEAT, {"collector_id": collector_id, "now": now})
    if began_at is None or now - began_at <= GAP:
        return None
    recorded = conn.execute(_RECORD, {"began_at": began_at, "now": now})
    return Gap(began_at, now) if recorded.rowcount else None


def prune(conn: Connection, before: int) -> int:
    """Old gaps, and collectors that stopped long ago; the newest always stays, to measure from."""
    newest = select(func.max(collectors.c.last_seen)).scalar_subquery()
    stale = (collectors.c.last_seen < before, collectors.c.last_seen < newest)
    conn.execute(delete(collectors).where(*stale))
    return conn.execute(delete(gaps).where(gaps.c.ended_at < before)).rowcount


def read(conn: Connection, since: int) -> list[Gap]:
    c = gaps.c
    rows = conn.execute(
        select(c.began_at, c.ended_at).where(c.ended_at > since).order_by(c.began_at)
    )
    return list(map(Gap._make, rows))
