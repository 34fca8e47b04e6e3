"""What rows tell that were changed: lines of the log, and the spells that ended. Text alone.

A line's number comes from a counter row a tenant, bumped in the same transaction and under its
lock, so cursor order is commit order. Worker rows are locked before counter rows, each in key
order.
"""

from __future__ import annotations

from collector.store.beats import Dialect, worker_json
from collector.values import TTL


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


def removed(d: Dialect, source: str, now: str) -> str:
    """The log lines of the rows in `source` (aliased w) that are about to go."""
    return f"""
SELECT w.tenant_id, w.agent_id, 0 AS step, 'removed' AS type, {now} AS at,
       NULL AS reason, {worker_json(d, "w")} AS worker
FROM {source}"""


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


def end_spells(source: str) -> str:
    """Write the spells that the rows in `source` (aliased w) ended.

    A spell that ended as it began, by equal stamps, goes on when its worker comes back at once.
    """
    return f"""
INSERT INTO spells (tenant_id, agent_id, online_from, online_until, reason)
SELECT w.tenant_id, w.agent_id, w.ended_from, coalesce(w.lost_at, w.last_seen),
       CASE WHEN w.lost_at IS NULL THEN 'left' ELSE 'lost' END
FROM {source} AND w.ended_from IS NOT NULL
ON CONFLICT (tenant_id, agent_id, online_from)
DO UPDATE SET online_until = excluded.online_until, reason = excluded.reason"""


def cut_off_spells(source: str, now: str) -> str:
    """Write the spells that end because the rows in `source` (aliased w) are removed.

    One whose worker was silent for longer than the TTL had ended by itself, announced or not.
    """
    lost = f"w.last_seen + {TTL} < {now}"
    return f"""
INSERT INTO spells (tenant_id, agent_id, online_from, online_until, reason)
SELECT w.tenant_id, w.agent_id, w.online_from,
       CASE WHEN {lost} THEN w.last_seen + {TTL} ELSE {now} END,
       CASE WHEN {lost} THEN 'lost' ELSE 'removed' END
FROM {source} AND w.online_from IS NOT NULL
ON CONFLICT (tenant_id, agent_id, online_from)
DO UPDATE SET online_until = excluded.online_until, reason = excluded.reason"""
