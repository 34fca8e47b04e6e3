"""The `selfhosted` store: embedded SQLite in WAL, for one collector.

All writes of this process run on one thread, beats on a connection of their own there; reads have
threads of their own and never wait for a write. Other processes (the command line) write too, and
wait their turn.
"""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from collector.errors import StoreError, StoreTaken, StoreUnavailable, Unstorable
from collector.store import audit, events, migrations, spells, workers
from collector.store import beats as beat_sql
from collector.store.relational import P, RelationalStore, T, Work
from collector.values import NEVER, Act, Beat, Silent

OLDEST_SQLITE = (3, 35, 0)  # the first with RETURNING
BUSY_SECONDS = 10
READERS = 4
# A batch goes in by statements of at most this many rows: 1024 × 16 values is within SQLite's
# limit of 32,766, and the few sizes below it stay prepared.
CHUNK = 1024

_CONNECTING: Final[Mapping[str, Any]] = {
    "isolation_level": None,
    "check_same_thread": False,
    "timeout": BUSY_SECONDS,
}
_FIELDS = ", ".join(Beat._fields)
_DIALECT = beat_sql.Dialect(
    distinct="IS NOT", json_object="json_object({})", now=":now", gone=":gone"
)
_SCRATCH = f"""
CREATE TEMP TABLE batch ({_FIELDS});
CREATE TEMP TABLE told (tenant_id, agent_id, step, type, at, reason, worker);"""
# A late beat changed nothing, and its row has another stamp: what its scratch says is older.
_UP = """temp.batch AS b CROSS JOIN workers AS w
ON w.tenant_id = b.tenant_id AND w.agent_id = b.agent_id WHERE w.last_seen = b.last_seen"""

UPSERT = beat_sql.upsert(_DIALECT, "temp.batch AS b WHERE true")
TOLD = f"INSERT INTO temp.told {events.told(_DIALECT, _UP)}"
END_SPELLS = spells.end(_UP)
APPEND = events.append(f"({events.NUMBERED})", "event_counters")
QUIET = """
UPDATE temp.batch AS b SET last_seen = (
  SELECT w.last_seen FROM workers AS w WHERE w.tenant_id = b.tenant_id
    AND w.agent_id = b.agent_id AND w.reported = 'online' AND w.last_seen < :before)"""
LOSE = f"""
UPDATE workers AS w SET {beat_sql.lose(_DIALECT)}
FROM temp.batch AS b
WHERE w.tenant_id = b.tenant_id AND w.agent_id = b.agent_id AND w.last_seen = b.last_seen"""

FIND = """
UPDATE temp.batch AS b SET last_seen = (
  SELECT w.last_seen FROM workers AS w WHERE w.tenant_id = b.tenant_id
    AND w.agent_id = b.agent_id AND w.last_seen < :before)"""
TELL_REMOVED = f"INSERT INTO temp.told {events.removed(_DIALECT, _UP, ':now')}"
CUT_OFF_SPELLS = spells.cut_off(_UP, ":now")
REMOVE = """
DELETE FROM workers WHERE (tenant_id, agent_id) IN (
  SELECT tenant_id, agent_id FROM temp.batch WHERE last_seen IS NOT NULL)"""


class SelfHostedStore(RelationalStore):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._writes = _engine(path, begin="BEGIN IMMEDIATE", pool_size=1)
        self._reads = _engine(path, begin="BEGIN", pool_size=READERS)
        event.listen(self._writes, "connect", _make_scratch)
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self._readers = ThreadPoolExecutor(READERS, "store-reader")
        # For beats alone, on the writer's thread.
        self._beats: sqlite3.Connection | None = None
        self._lock: IO[str] | None = None

    async def open(self, *, serving: bool = False) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old: this Python needs one with "
                f"{'.'.join(map(str, OLDEST_SQLITE))} or newer"
            )
        with translated():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)  # it holds the keys' digests
            if serving:
                self._lock = only_collector(self._path)
        await self._write(lambda _: None)

    async def close(self) -> None:
        for pool in (self._writer, self._readers):
            await asyncio.to_thread(pool.shutdown)
        self._drop_beats()
        self._writes.dispose()
        self._reads.dispose()
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    async def time(self) -> None:
        return None

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        return self._woken(await _submit(self._writer, self._commit_beats, beats, now, gone))

    def _commit_beats(self, beats: Sequence[Beat], now: int, gone: int) -> frozenset[str]:
        """On the writer's thread, without the pool and its events: they cost as much as a beat."""
        with translated():
            if self._beats is None:
                self._beats = _connect(self._path)
            try:
                with _transaction(self._beats) as raw:
                    return _commit(raw, beats, now, gone)
            finally:
                if self._beats.in_transaction:
                    self._drop_beats()

    def _drop_beats(self) -> None:
        """Its transaction ends with the connection: nothing else of ours could write."""
        if self._beats is not None:
            self._beats.close()
        self._beats = None

    async def announce_lost(self, silent: Sequence[Silent], *, before: int) -> frozenset[str]:
        return await self._telling(_announce_lost, silent, before)

    async def remove(
        self,
        tenant_id: str,
        agent_ids: Sequence[str],
        *,
        now: int,
        before: int = NEVER,
        act: Act | None = None,
    ) -> int:
        found = [Silent(tenant_id, agent_id, 0) for agent_id in agent_ids]
        removed = await self._write(_remove, found, before, now, act)
        if removed:
            self._wake(frozenset([tenant_id]))
        return removed

    async def forget(self, *, before: int, limit: int, now: int) -> frozenset[str]:
        return await self._telling(_forget, before, limit, now)

    async def migrate(self) -> None:
        await self._write(migrations.upgrade)

    async def _telling(
        self, work: Work[P, frozenset[str]], *args: P.args, **kwargs: P.kwargs
    ) -> frozenset[str]:
        return self._woken(await self._write(work, *args, **kwargs))

    def _woken(self, tenants: frozenset[str]) -> frozenset[str]:
        if tenants:
            self._wake(tenants)
        return tenants

    async def _read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await _run(self._readers, self._reads, lambda conn: work(conn, *args, **kwargs))

    async def _write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await _run(self._writer, self._writes, lambda conn: work(conn, *args, **kwargs))


@contextmanager
def _transaction(raw: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    raw.execute("BEGIN IMMEDIATE")
    try:
        yield raw
        raw.execute("COMMIT")
    except BaseException:
        # Some failures have ended it already.
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        raise


def _commit(raw: sqlite3.Connection, beats: Sequence[Beat], now: int, gone: int) -> frozenset[str]:
    _load(raw, _FIELDS, beats)
    raw.execute(UPSERT, {"now": now, "gone": gone})
    return _tell(raw)


def _announce_lost(conn: Connection, silent: Sequence[Silent], before: int) -> frozenset[str]:
    raw = _driver(conn)
    _load(raw, ", ".join(Silent._fields), _once_each(silent))
    raw.execute(QUIET, {"before": before})
    raw.execute(LOSE)
    return _tell(raw)


def _once_each(found: Sequence[Silent]) -> list[Silent]:
    """A worker that is named twice would be told of twice."""
    return list({(each.tenant_id, each.agent_id): each for each in found}.values())


def _forget(conn: Connection, before: int, limit: int, now: int) -> frozenset[str]:
    old = workers.forgettable(conn, before, limit)
    _remove(conn, old, before, now, None)
    return frozenset(each.tenant_id for each in old)


def _remove(
    conn: Connection, found: Sequence[Silent], before: int, now: int, act: Act | None
) -> int:
    raw = _driver(conn)
    _load(raw, ", ".join(Silent._fields), _once_each(found))
    raw.execute(FIND, {"before": before})
    removed = raw.execute(TELL_REMOVED, {"now": now}).rowcount
    raw.execute(CUT_OFF_SPELLS, {"now": now})
    raw.execute(REMOVE)
    if removed:
        _append(raw)
    _clear(raw)
    if removed and act is not None:
        audit.write(conn, found[0].tenant_id, now, act, workers=removed)
    return removed


def _tell(raw: sqlite3.Connection) -> frozenset[str]:
    """Log what the rows of the batch now say of themselves; most often that is nothing."""
    if not raw.execute(TOLD).rowcount:
        return _clear(raw)
    raw.execute(END_SPELLS)
    return _append(raw)


def _append(raw: sqlite3.Connection) -> frozenset[str]:
    """Number and write the lines of temp.told; return their tenants."""
    raw.execute(events.BUMP)
    raw.execute(APPEND)
    tenants = raw.execute("SELECT DISTINCT tenant_id FROM temp.told").fetchall()
    raw.execute("DELETE FROM temp.told")
    return _clear(raw).union(tenant for (tenant,) in tenants)


def _clear(raw: sqlite3.Connection) -> frozenset[str]:
    raw.execute("DELETE FROM temp.batch")
    return frozenset()


def _load(raw: sqlite3.Connection, fields: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Fill temp.batch by a few large statements: each is one step with the interpreter released.

    Sizes are powers of two, the rest padded with NULLs, so that each stays prepared.
    """
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        width, size = len(chunk[0]), 1 << (len(chunk) - 1).bit_length()
        places = ", ".join([f"({', '.join('?' * width)})"] * size)
        padding = (None,) * (width * (size - len(chunk)))
        raw.execute(
            f"INSERT INTO temp.batch ({fields})"
            f" SELECT * FROM (VALUES {places}) WHERE column1 IS NOT NULL",
            (*chain.from_iterable(chunk), *padding),
        )


def _driver(conn: Connection) -> sqlite3.Connection:
    raw = conn.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


async def _run(pool: ThreadPoolExecutor, engine: Engine, work: Callable[[Connection], T]) -> T:
    return await _submit(pool, _transact, engine, work)


async def _submit(
    pool: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    try:
        under_way = pool.submit(work, *args, **kwargs)
    except RuntimeError as error:
        raise StoreUnavailable("the store is closed") from error
    return await asyncio.wrap_future(under_way)


def _transact(engine: Engine, work: Callable[[Connection], T]) -> T:
    with translated(), engine.begin() as conn:
        return work(conn)


def _connect(path: Path) -> sqlite3.Connection:
    raw: sqlite3.Connection = sqlite3.connect(path, **_CONNECTING)
    _configure(raw, None)
    _make_scratch(raw, None)
    return raw


def _engine(path: Path, *, begin: str, pool_size: int) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        pool_size=pool_size,
        max_overflow=0,
        connect_args=dict(_CONNECTING),
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql(begin))
    return engine


def _configure(raw: sqlite3.Connection, _record: object) -> None:
    # FULL: an acknowledged beat survives a power cut; group commit pays one fsync a batch.
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "temp_store = MEMORY"):
        raw.execute(f"PRAGMA {pragma}")


def _make_scratch(raw: sqlite3.Connection, _record: object) -> None:
    raw.executescript(_SCRATCH)


def lock_of(path: Path) -> Path:
    """Where the lock is: beside the store itself, by whatever link it is reached."""
    store = path.resolve()
    return store.with_name(store.name + ".lock")


def only_collector(path: Path) -> IO[str]:
    """A lock that the operating system drops with the process, however it ends."""
    name = lock_of(path)
    name.touch(mode=0o600)
    lock = name.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StoreTaken(f"another collector is serving {path}; stop it first") from None
    return lock


@contextmanager
def translated() -> Iterator[None]:
    """Turn what sqlite3 and SQLAlchemy raise into the store's own errors."""
    try:
        yield
    except StoreError:
        raise
    except DBAPIError as error:
        raise _store_error(error.orig or error) from error
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"SQLite: {error}") from error
    except (OSError, OverflowError, sqlite3.Error, UnicodeError) as error:
        raise _store_error(error) from error


def _store_error(error: BaseException) -> StoreError:
    refused = (sqlite3.DataError, sqlite3.IntegrityError, OverflowError, UnicodeError)
    if isinstance(error, refused):
        return Unstorable("SQLite refuses these values")
    return StoreUnavailable(f"SQLite: {error}")
