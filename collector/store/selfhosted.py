"""The `selfhosted` store: embedded SQLite in WAL, for one collector.

A process of their own writes beats, one thread of this one all else; the two take turns. Reads have
threads of their own and never wait for a write. Other processes (the command line) write too, and
wait for SQLite's own lock. While a collector serves it nothing here waits for ever: who waits gives
up in time, and what hangs is ended or left behind.
"""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from collector.errors import StoreError, StoreTaken, StoreUnavailable
from collector.store import audit, migrations, telling, workers
from collector.store import beats as beat_sql
from collector.store import sqlite_batches as batches
from collector.store.bounds import ATTEMPT_SECONDS, CLOSE_SECONDS
from collector.store.relational import P, RelationalStore, T, Work
from collector.store.writer import Writer
from collector.values import NEVER, NO_GAP, Act, Beat, Gap, Silent

OLDEST_SQLITE = (3, 35, 0)  # the first with RETURNING
READERS = 4
LOCK_ATTEMPTS = 50
LOCK_PAUSE_SECONDS = 0.02
# A collector waits this long for a thread and its turn; the command line waits without a limit.
STATEMENT_SECONDS = 10

QUIET = """
UPDATE temp.batch AS b SET last_seen = (
  SELECT w.last_seen FROM workers AS w WHERE w.tenant_id = b.tenant_id
    AND w.agent_id = b.agent_id AND w.reported = 'online' AND w.last_seen < :before)"""
LOSE = f"""
UPDATE workers AS w SET {beat_sql.lose(batches.DIALECT)}
FROM temp.batch AS b
WHERE w.tenant_id = b.tenant_id AND w.agent_id = b.agent_id AND w.last_seen = b.last_seen"""

FIND = """
UPDATE temp.batch AS b SET last_seen = (
  SELECT w.last_seen FROM workers AS w WHERE w.tenant_id = b.tenant_id
    AND w.agent_id = b.agent_id AND w.last_seen < :before)"""
TELL_REMOVED = f"INSERT INTO temp.told {telling.removed(batches.DIALECT, batches.UP, ':now')}"
CUT_OFF_SPELLS = telling.cut_off_spells(batches.UP, ":now")
REMOVE = """
DELETE FROM workers WHERE (tenant_id, agent_id) IN (
  SELECT tenant_id, agent_id FROM temp.batch WHERE last_seen IS NOT NULL)"""


class SelfHostedStore(RelationalStore):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.url = URL.create("sqlite", database=str(path.absolute())).render_as_string()
        self._path = path
        self._writes = _engine(path, begin="BEGIN IMMEDIATE", pool_size=1)
        self._reads = _engine(path, begin="BEGIN", pool_size=READERS)
        event.listen(self._writes, "connect", batches.make_scratch)
        event.listen(self._writes, "connect", self._wait_as_one_who_serves)
        self._writer = Writer(path, lambda: self._lock)
        self._write_thread = ThreadPoolExecutor(1, "store-writer")
        self._readers = ThreadPoolExecutor(READERS, "store-reader")
        # Between those two that write: SQLite's lock would have the one poll for the other's end.
        self._turn = asyncio.Lock()
        self._lock: IO[str] | None = None
        self._seconds: float | None = None

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
                self._seconds = STATEMENT_SECONDS
        await self._write(lambda _: None)
        if serving:
            with translated():
                await self._writer.open()

    async def close(self) -> None:
        pools = (self._write_thread, self._readers)
        ended = [asyncio.create_task(asyncio.to_thread(pool.shutdown)) for pool in pools]
        # A collector waits no longer than this for a thread that hangs.
        await asyncio.wait(ended, timeout=self._seconds and CLOSE_SECONDS)
        # After a batch that is under way, as the pools do.
        async with AsyncExitStack() as held:
            with suppress(StoreUnavailable):
                async with within(self._seconds and CLOSE_SECONDS):
                    await held.enter_async_context(self._turn)
            await self._writer.close()
        if all(each.done() for each in ended):
            self._writes.dispose()
            self._reads.dispose()
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    def abandon(self) -> None:
        self._writer.abandon()

    async def time(self) -> None:
        return None

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        if not beats:
            return frozenset()
        return self._woken(await self._commit(beats, now, gone))

    async def listen(self, collector_id: str, *, now: int) -> Gap | None:
        # Behind the beats, on their way: who can't commit them does not listen.
        await self._commit((), now, NO_GAP)
        return await super().listen(collector_id, now=now)

    async def _commit(self, beats: Sequence[Beat], now: int, gone: int) -> frozenset[str]:
        with translated():
            async with within(ATTEMPT_SECONDS), self._turn:
                return await self._writer.commit(beats, now, gone)

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
        # It takes as long as it takes, and nobody is served before it has ended.
        async with self._turn:
            await _run(self._write_thread, self._writes, migrations.upgrade, None)

    async def _telling(
        self, work: Work[P, frozenset[str]], *args: P.args, **kwargs: P.kwargs
    ) -> frozenset[str]:
        return self._woken(await self._write(work, *args, **kwargs))

    def _woken(self, tenants: frozenset[str]) -> frozenset[str]:
        if tenants:
            self._wake(tenants)
        return tenants

    async def _read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await _run(
            self._readers, self._reads, lambda conn: work(conn, *args, **kwargs), self._seconds
        )

    async def _write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with within(self._seconds), self._turn:
            return await _run(
                self._write_thread,
                self._writes,
                lambda conn: work(conn, *args, **kwargs),
                self._seconds,
            )

    def _wait_as_one_who_serves(self, raw: sqlite3.Connection, _record: object) -> None:
        if self._seconds is not None:
            batches.wait_briefly(raw)


def _announce_lost(conn: Connection, silent: Sequence[Silent], before: int) -> frozenset[str]:
    raw = _driver(conn)
    batches.load(raw, Silent._fields, _once_each(silent))
    raw.execute(QUIET, {"before": before})
    raw.execute(LOSE)
    return batches.tell(raw)


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
    batches.load(raw, Silent._fields, _once_each(found))
    raw.execute(FIND, {"before": before})
    removed = raw.execute(TELL_REMOVED, {"now": now}).rowcount
    raw.execute(CUT_OFF_SPELLS, {"now": now})
    raw.execute(REMOVE)
    if removed:
        batches.append(raw)
    batches.clear(raw)
    if removed and act is not None:
        audit.write(conn, found[0].tenant_id, now, act, workers=removed)
    return removed


def _driver(conn: Connection) -> sqlite3.Connection:
    raw = conn.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


async def _run(
    pool: ThreadPoolExecutor,
    engine: Engine,
    work: Callable[[Connection], T],
    seconds: float | None,
) -> T:
    query = Query()
    try:
        async with within(seconds):
            return await _submit(pool, _transact, engine, work, query)
    finally:
        # Nobody waits for it any more: the thread is there for others.
        query.interrupt()


@asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise StoreUnavailable(f"SQLite does not answer within {seconds} s") from None


class Query:
    """The work of one thread, which another one may interrupt until it is done and not after."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._raw: sqlite3.Connection | None = None
        self._is_given_up = False

    @contextmanager
    def on(self, raw: sqlite3.Connection) -> Iterator[None]:
        self._use(raw)
        try:
            yield
        finally:
            self._use(None)

    def _use(self, raw: sqlite3.Connection | None) -> None:
        """SQLite interrupts a statement alone: work that was given up between two ends here."""
        with self._lock:
            self._raw = None if self._is_given_up else raw
            if self._is_given_up:
                raise StoreUnavailable("nobody waits for this any more")

    def interrupt(self) -> None:
        with self._lock:
            self._is_given_up = True
            if self._raw is not None:
                self._raw.interrupt()


async def _submit(
    pool: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    try:
        under_way = pool.submit(work, *args, **kwargs)
    except RuntimeError as error:
        raise StoreUnavailable("the store is closed") from error
    return await asyncio.wrap_future(under_way)


def _transact(engine: Engine, work: Callable[[Connection], T], query: Query) -> T:
    with translated(), engine.begin() as conn, query.on(_driver(conn)):
        return work(conn)


def _engine(path: Path, *, begin: str, pool_size: int) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        pool_size=pool_size,
        max_overflow=0,
        connect_args=dict(batches.CONNECTING),
    )
    event.listen(engine, "connect", batches.configure)
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql(begin))
    return engine


def lock_of(path: Path) -> Path:
    """Where the lock is: beside the store itself, by whatever link it is reached."""
    store = path.resolve()
    return store.with_name(store.name + ".lock")


def only_collector(path: Path) -> IO[str]:
    """A lock that the operating system drops with the process, however it ends.

    And with the one that writes its beats: of a collector that was killed, what it was given last
    is written first. That takes a moment.
    """
    name = lock_of(path)
    name.touch(mode=0o600)
    lock = name.open("w")
    for _ in range(LOCK_ATTEMPTS):
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        time.sleep(LOCK_PAUSE_SECONDS)
    lock.close()
    raise StoreTaken(f"another collector is serving {path}; stop it first")


@contextmanager
def translated() -> Iterator[None]:
    """Turn what sqlite3 and SQLAlchemy raise into the store's own errors."""
    try:
        yield
    except StoreError:
        raise
    except DBAPIError as error:
        raise batches.store_error(error.orig or error) from error
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"SQLite: {error}") from error
    except batches.FAULTS as error:
        raise batches.store_error(error) from error
