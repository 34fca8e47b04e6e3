"""Very many keys and workers, put into a store by few statements."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import argon2
from sqlalchemy import Connection, text

from benchmarks.fleet import BODY, NUMBER, Fleet
from collector.clock import SystemClock
from collector.store.keys import next_revision
from collector.store.protocol import Store
from collector.store.relational import RelationalStore
from collector.store.schema import keys, workers
from collector.values import SECOND
from collector.workers import microseconds
from contract.vocabulary import KEY_ALPHABET, KEY_ID_LENGTH, KEY_LENGTH, KEY_PREFIX

CHUNK = 20_000
DAY = 86_400 * SECOND
# No window has an argon2 run in it: keys are presented before. So they may be cheap ones.
_CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, type=argon2.Type.ID)

# One text for both engines. The sweep has told of these workers already: they are at rest.
_FILL = """
INSERT INTO workers ({columns})
WITH RECURSIVE numbers(n) AS (
  SELECT CAST({first} AS integer) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {end})
SELECT {values} FROM numbers"""


async def admit(store: Store, fleet: Fleet) -> Fleet:
    """The same fleet with a key of its own for every tenant, to beat and to read with."""
    alphabet = list(KEY_ALPHABET)
    minted = [
        KEY_PREFIX + "".join(secrets.choice(alphabet) for _ in range(KEY_LENGTH))
        for _ in fleet.keys
    ]
    await _relational(store)._write(
        _add_keys, [_key_row(fleet, *each) for each in enumerate(minted)]
    )
    return replace(fleet, keys=tuple(minted))


def _key_row(fleet: Fleet, n: int, plaintext: str) -> dict[str, Any]:
    return {
        "id": plaintext.removeprefix(KEY_PREFIX)[:KEY_ID_LENGTH],
        "tenant_id": fleet.tenant(n),
        "digest": _CHEAP.hash(plaintext),
        "scopes": "ingest,read",
        "created_at": SystemClock().now(),
    }


def _add_keys(conn: Connection, rows: Iterable[dict[str, Any]]) -> None:
    revision = next_revision(conn)
    conn.execute(keys.insert(), [row | {"revision": revision} for row in rows])


async def fill(store: Store, fleet: Fleet) -> None:
    """All of the fleet's workers are in the store, and were lost a day ago."""
    columns = _columns(fleet, SystemClock().now() - DAY)
    for first in range(0, fleet.workers, CHUNK):
        statement = _FILL.format(
            columns=", ".join(columns),
            values=", ".join(columns.values()),
            first=first,
            end=min(first + CHUNK, fleet.workers),
        )
        await _relational(store)._write(_execute, statement)


def _execute(conn: Connection, statement: str) -> None:
    conn.execute(text(statement))


def _columns(fleet: Fleet, stamp: int) -> dict[str, str]:
    """What each column of worker n is, in SQL."""
    tenant = f"substr('' || (100000 + n % {len(fleet.keys)}), 2)"
    times = {"started_at": microseconds(BODY["started_at"]), "ts": microseconds(BODY["ts"])}
    times |= {"last_seen": stamp, "first_seen": stamp, "beat_started_at": times["started_at"]}
    given = {name: value for name, value in BODY.items() if name in workers.c}
    columns = {name: _literal(value) for name, value in (given | times).items()}
    return columns | {"tenant_id": f"'tenant-' || {tenant}", "reported": "'lost'"}


def _literal(value: object) -> str:
    number = "substr('' || (1000000 + n), 2)"
    if isinstance(value, str):
        return f"'{value}'".replace(NUMBER, f"' || {number} || '")
    return "NULL" if value is None else str(value)


def _relational(store: Store) -> RelationalStore:
    assert isinstance(store, RelationalStore)
    return store
