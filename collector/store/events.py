"""The tenants' logs: what a change becomes, its number, and reading it back.

The number comes from a counter row a tenant, bumped in the same transaction and under its lock,
so cursor order is commit order. Worker rows are locked before counter rows, each in key order.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection, select

from collector.store.beats import Dialect, worker_json
from collector.store.schema import events
from collector.values import Event


def told(d: Dialect, source: str) -> str:
    """The log lines of the rows in `source` (aliased w), from their scratch columns."""
    return f"""
SELECT w.tenant_id, w.agent_id, 0 AS step, 'offline' AS type, w.lost_at AS at,
       'lost' AS reason, w.was AS worker
FROM {source} AND w.lost_at IS NOT NULL
UNION ALL
SELECT w.tenant_id, w.agent_id, 1, CASE w.change WHEN 'resumed' THEN 'changed' ELSE w.change END,
       w.last_seen, CASE w.change WHEN 'resumed' THEN 'collector_gap' END, {worker_json(d, "w")}
FROM {source} AND w.change IS NOT NULL"""


NUMBERED = """
SELECT *, row_number() OVER (PARTITION BY tenant_id ORDER BY agent_id, step) AS k,
       count(*) OVER (PARTITION BY tenant_id) AS total
FROM told"""

BUMP = """
INSERT INTO event_counters AS c (tenant_id, n)
SELECT tenant_id, count(*) FROM told WHERE true GROUP BY tenant_id ORDER BY tenant_id
ON CONFLICT (tenant_id) DO UPDATE SET n = c.n + excluded.n"""


def append(numbered: str, counters: str) -> str:
    """Write the numbered lines, each at its place below its tenant's bumped counter."""
    return f"""
INSERT INTO events (tenant_id, n, type, at, reason, agent_id, worker)
SELECT l.tenant_id, c.n - l.total + l.k, l.type, l.at, l.reason, l.agent_id, l.worker
FROM {numbered} AS l JOIN {counters} AS c ON c.tenant_id = l.tenant_id"""


def read(conn: Connection, tenant_id: str, after: int, limit: int) -> list[Event]:
    c = events.c
    rows = conn.execute(
        select(c.n, c.type, c.at, c.reason, c.agent_id, c.worker)
        .where(c.tenant_id == tenant_id, c.n > after)
        .order_by(c.n)
        .limit(limit)
    )
    return [Event(*row[:-1], json.loads(row[-1])) for row in rows]
