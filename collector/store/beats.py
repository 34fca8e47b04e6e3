"""The hot statement's text: one upsert that also says what it changed.

Both backends run this very text; they differ only in where the batch comes from and in the few
phrases of `Dialect`. The rules are those of `Store.commit`.

Two writers may race for a row: everything that must see the row as the upsert found it is said
in the SET list, where `w` is the locked row, and carried out in the scratch columns `change`,
`lost_at`, `ended_from` and `was`. A query beside the upsert would see an older row.
"""

from __future__ import annotations

from dataclasses import dataclass

from collector.values import SECOND, TTL, Beat, Worker
from contract.vocabulary import COMPARED_FIELDS, PROCESS_FIELDS, STAMP_AHEAD_SECONDS

_BEAT = Beat._fields
_KEY = ("tenant_id", "agent_id")
# started_at has a rule of its own; the rest of a beat replaces what the row has.
_REPLACED = tuple(f for f in _BEAT if f not in (*_KEY, "started_at"))


@dataclass(frozen=True, slots=True)
class Dialect:
    """The phrases in which the two engines differ."""

    distinct: str
    json_object: str
    now: str
    gone: str


def worker_json(d: Dialect, row: str) -> str:
    """The worker's row as a JSON object, for the log."""
    pairs = ", ".join(f"'{f}', {row}.{f}" for f in Worker._fields)
    return d.json_object.format(pairs)


def upsert(d: Dialect, source: str) -> str:
    """INSERT … SELECT … FROM source (aliased b, its columns named as a beat's fields)."""
    reported = "CASE b.status WHEN 'offline' THEN 'left' ELSE 'online' END"
    online_from = "CASE b.status WHEN 'offline' THEN NULL ELSE b.last_seen END"
    return f"""
INSERT INTO workers AS w ({", ".join(_BEAT)},
  first_seen, reported, change, online_from, beat_started_at)
SELECT {", ".join(f"b.{f}" for f in _BEAT)},
  b.last_seen, {reported}, {reported}, {online_from}, b.started_at
FROM {source}
ON CONFLICT (tenant_id, agent_id) DO UPDATE SET
  {_set_list(d)}
WHERE excluded.last_seen >= w.last_seen
   OR w.last_seen > {d.now} + {STAMP_AHEAD_SECONDS * SECOND}"""


def lose(d: Dialect) -> str:
    """The SET list that turns a silent row `w` to lost; its scratch tells the log."""
    return f"""reported = 'lost', change = NULL, lost_at = w.last_seen + {TTL},
  ended_from = w.online_from, online_from = NULL, was = {worker_json(d, "w")}"""


def _set_list(d: Dialect) -> str:
    silent = f"w.reported = 'online' AND w.last_seen < excluded.last_seen - {TTL}"
    lost = f"{silent} AND w.last_seen < {d.gone}"
    leaving = "excluded.reported = 'left'"
    second_process = (
        f"w.reported = 'online' AND w.last_seen >= excluded.last_seen - {TTL} AND NOT {leaving}"
        " AND excluded.started_at IS NOT NULL AND w.beat_started_at IS NOT NULL"
        " AND excluded.started_at < w.beat_started_at"
    )
    known_conflict = (
        "w.conflict_seen IS NOT NULL"
        f" AND w.conflict_seen BETWEEN excluded.last_seen - {TTL} AND excluded.last_seen"
    )
    conflict = f"(({second_process}) OR ({known_conflict}))"
    assignments = {
        **{f: f"excluded.{f}" for f in _REPLACED},
        "reported": "excluded.reported",
        "started_at": f"""CASE
    WHEN {conflict} AND w.started_at IS NOT NULL
     AND (excluded.started_at IS NULL OR excluded.started_at < w.started_at) THEN w.started_at
    ELSE excluded.started_at END""",
        "beat_started_at": "excluded.started_at",
        "conflict_seen": f"""CASE
    WHEN {second_process} THEN excluded.last_seen ELSE w.conflict_seen END""",
        "online_from": f"""CASE
    WHEN {leaving} THEN NULL
    WHEN w.reported = 'online' AND NOT ({lost}) THEN w.online_from
    ELSE excluded.last_seen END""",
        "lost_at": f"CASE WHEN {lost} THEN w.last_seen + {TTL} END",
        "ended_from": f"""CASE
    WHEN ({lost}) OR (w.reported = 'online' AND {leaving}) THEN w.online_from END""",
        "was": f"CASE WHEN {lost} THEN {worker_json(d, 'w')} END",
        "change": f"""CASE
    WHEN {leaving} THEN CASE WHEN w.reported = 'left' THEN NULL ELSE 'left' END
    WHEN {silent} AND NOT ({lost}) THEN 'resumed'
    WHEN w.reported <> 'online' OR ({silent}) THEN 'online'
    WHEN {second_process} AND NOT ({known_conflict}) THEN 'conflict'
    WHEN {_differs(d, conflict)} THEN 'changed' END""",
    }
    return ",\n  ".join(f"{column} = {value}" for column, value in assignments.items())


def _differs(d: Dialect, conflict: str) -> str:
    def differ(fields: tuple[str, ...]) -> str:
        return " OR ".join(f"w.{f} {d.distinct} excluded.{f}" for f in fields)

    always = tuple(f for f in COMPARED_FIELDS if f not in PROCESS_FIELDS)
    return f"{differ(always)}\n      OR (NOT {conflict} AND ({differ(PROCESS_FIELDS)}))"
