"""Spells of being online: the open one stands in its worker's row, the ended ones here."""

from __future__ import annotations

from itertools import accumulate

from sqlalchemy import Connection, delete, select, text, tuple_

from collector.store.schema import spells, workers
from collector.values import TTL, Spell


def prune(conn: Connection, before: int, limit: int) -> int:
    key = tuple_(spells.c.tenant_id, spells.c.agent_id, spells.c.online_from)
    old = select(*key.clauses).where(spells.c.online_until < before).limit(limit)
    return conn.execute(delete(spells).where(key.in_(old))).rowcount


def read(conn: Connection, tenant_id: str, agent_id: str, since: int) -> list[Spell]:
    s, w = spells.c, workers.c
    ended = conn.execute(
        select(s.online_from, s.online_until, s.reason)
        .where(s.tenant_id == tenant_id, s.agent_id == agent_id, s.online_until > since)
        .order_by(s.online_from)
    )
    lasting = conn.execute(
        select(w.online_from).where(
            w.tenant_id == tenant_id, w.agent_id == agent_id, w.online_from.is_not(None)
        )
    )
    return [Spell(*row) for row in ended] + [Spell(row[0], None, None) for row in lasting]


# Each spell as the first and the last step that it touches. A worker whose spells meet in one step
# is counted there once: its next spell begins in the step after.
_PRESENCE = text(f"""
WITH spans AS (
    SELECT agent_id, online_from, online_until FROM spells
    WHERE tenant_id = :tenant_id AND online_until >= :since AND online_from <= :now
    UNION ALL
    SELECT agent_id, online_from,
           CASE WHEN last_seen + {TTL} < :now THEN last_seen + {TTL} ELSE :now END
    FROM workers
    WHERE tenant_id = :tenant_id AND online_from <= :now AND last_seen + {TTL} >= :since
), touched AS (
    SELECT agent_id, online_from,
           CASE WHEN online_from < :since THEN 0 WHEN online_from >= :now THEN :steps - 1
                ELSE (online_from - :since) / :step END AS first,
           CASE WHEN online_until >= :now THEN :steps - 1
                ELSE (online_until - :since) / :step END AS last
    FROM spans
), apart AS (
    SELECT first, last,
           lag(last) OVER (PARTITION BY agent_id ORDER BY online_from) AS before
    FROM touched
), counted AS (
    SELECT CASE WHEN before >= first THEN before + 1 ELSE first END AS first, last FROM apart
)
SELECT first, last, count(*) FROM counted WHERE first <= last GROUP BY first, last""")


def presence(conn: Connection, tenant_id: str, since: int, step: int, steps: int) -> list[int]:
    now = since + step * steps
    given = {"tenant_id": tenant_id, "since": since, "step": step, "steps": steps, "now": now}
    differences = [0] * (steps + 1)
    for first, last, workers_there in conn.execute(_PRESENCE, given):
        differences[first] += workers_there
        differences[last + 1] -= workers_there
    return list(accumulate(differences[:steps]))
