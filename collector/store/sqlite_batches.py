"""A batch in SQLite: put in a scratch table, applied, and told of. By the driver alone.

The process that writes beats loads this, and so it needs nothing but the standard library.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

from collector.errors import StoreError, StoreUnavailable, Unstorable
from collector.store import beats as beat_sql
from collector.store import telling
from collector.store.bounds import LOCK_SECONDS
from collector.values import Beat

# Somebody at the command line waits this long for others who write.
BUSY_SECONDS = 10
# A batch goes in by statements of at most this many rows: 1024 × 16 values is within SQLite's
# limit of 32,766, and the few sizes below it stay prepared.
CHUNK = 1024
# A beat writes a whole page to the log, and a line of the feed has to fit on one. Files that have
# pages of another size keep them.
PAGE_BYTES = 2048
# How long the log gets before its pages go into the file: what many beats wrote goes once.
LOG_PAGES = 8000
CONNECTING: Final[Mapping[str, Any]] = {
    "isolation_level": None,
    "check_same_thread": False,
    "timeout": BUSY_SECONDS,
}
_PRAGMAS: Final = (
    # Before the log, which settles it.
    f"page_size = {PAGE_BYTES}",
    "journal_mode = WAL",
    f"wal_autocheckpoint = {LOG_PAGES}",
    # An acknowledged beat survives a power cut; group commit pays one fsync a batch.
    "synchronous = FULL",
    "temp_store = MEMORY",
)
# What SQLite and its driver raise.
FAULTS: Final = (OSError, OverflowError, sqlite3.Error, UnicodeError)

DIALECT: Final = beat_sql.Dialect(
    distinct="IS NOT", json_object="json_object({})", now=":now", gone=":gone"
)
# A late beat changed nothing, and its row has another stamp: what its scratch says is older.
UP: Final = """temp.batch AS b CROSS JOIN workers AS w
ON w.tenant_id = b.tenant_id AND w.agent_id = b.agent_id WHERE w.last_seen = b.last_seen"""

_SCRATCH = f"""
CREATE TEMP TABLE batch ({", ".join(Beat._fields)});
CREATE TEMP TABLE told (tenant_id, agent_id, step, type, at, reason, worker);"""
UPSERT: Final = beat_sql.upsert(DIALECT, "temp.batch AS b WHERE true")
_TOLD = f"INSERT INTO temp.told {telling.told(DIALECT, UP)}"
_END_SPELLS = telling.end_spells(UP)
_APPEND = telling.append(f"({telling.NUMBERED})", "event_counters")


def connect(path: Path) -> sqlite3.Connection:
    raw: sqlite3.Connection = sqlite3.connect(path, **CONNECTING)
    wait_briefly(raw)
    configure(raw)
    make_scratch(raw)
    return raw


def wait_briefly(raw: sqlite3.Connection) -> None:
    """A collector's connection waits less long for other writers than a person's does."""
    raw.execute(f"PRAGMA busy_timeout = {round(LOCK_SECONDS * 1000)}")


def configure(raw: sqlite3.Connection, _record: object = None) -> None:
    for pragma in _PRAGMAS:
        raw.execute(f"PRAGMA {pragma}")


def make_scratch(raw: sqlite3.Connection, _record: object = None) -> None:
    raw.executescript(_SCRATCH)


def commit(
    raw: sqlite3.Connection, beats: Sequence[tuple[Any, ...]], now: int, gone: int
) -> frozenset[str]:
    """Upsert the beats, in a transaction; return the tenants whose log grew."""
    with _transaction(raw):
        load(raw, Beat._fields, beats)
        raw.execute(UPSERT, {"now": now, "gone": gone})
        return tell(raw)


@contextmanager
def _transaction(raw: sqlite3.Connection) -> Iterator[None]:
    raw.execute("BEGIN IMMEDIATE")
    try:
        yield
        raw.execute("COMMIT")
    except BaseException:
        # Some failures have ended it already.
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        raise


def load(raw: sqlite3.Connection, fields: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Fill temp.batch by a few large statements.

    Sizes are powers of two, the rest padded with NULLs, so that each stays prepared.
    """
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        width, size = len(fields), 1 << (len(chunk) - 1).bit_length()
        places = ", ".join([f"({', '.join('?' * width)})"] * size)
        padding = (None,) * (width * (size - len(chunk)))
        raw.execute(
            f"INSERT INTO temp.batch ({', '.join(fields)})"
            f" SELECT * FROM (VALUES {places}) WHERE column1 IS NOT NULL",
            (*chain.from_iterable(chunk), *padding),
        )


def tell(raw: sqlite3.Connection) -> frozenset[str]:
    """Log what the rows of the batch now say of themselves; most often that is nothing."""
    if not raw.execute(_TOLD).rowcount:
        return clear(raw)
    raw.execute(_END_SPELLS)
    return append(raw)


def append(raw: sqlite3.Connection) -> frozenset[str]:
    """Number and write the lines of temp.told; return their tenants."""
    raw.execute(telling.BUMP)
    raw.execute(_APPEND)
    tenants = raw.execute("SELECT DISTINCT tenant_id FROM temp.told").fetchall()
    raw.execute("DELETE FROM temp.told")
    return clear(raw).union(tenant for (tenant,) in tenants)


def clear(raw: sqlite3.Connection) -> frozenset[str]:
    raw.execute("DELETE FROM temp.batch")
    return frozenset()


def store_error(error: BaseException) -> StoreError:
    """One of FAULTS in the store's own words."""
    refused = (sqlite3.DataError, sqlite3.IntegrityError, OverflowError, UnicodeError)
    if isinstance(error, refused):
        return Unstorable("SQLite refuses these values")
    return StoreUnavailable(f"SQLite: {error}")
