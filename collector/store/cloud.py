"""The `cloud` store: PostgreSQL, for any number of collectors.

The writer has one direct connection with prepared statements; everything else goes through a
pool that may have pgbouncer behind it, and so keeps no prepared statement between uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
from sqlalchemy import AdaptedConnection, event, make_url, text
from sqlalchemy.exc import DBAPIError, InvalidatePoolError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from collector.errors import StoreError, StoreUnavailable, Unstorable
from collector.store import audit, migrations, telling, workers
from collector.store import beats as beat_sql
from collector.store.bounds import ATTEMPT_SECONDS, CLOSE_SECONDS, LOCK_SECONDS
from collector.store.relational import P, RelationalStore, T, Work
from collector.store.wakeups import Wakeups
from collector.values import NEVER, NO_GAP, Act, Beat, Gap, Silent

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 10
# Another migration may take its time, but not for ever.
MIGRATION_WAIT_SECONDS = 600
# Any number will do, as long as no other program on this database locks it.
MIGRATION_LOCK = 0x_C011EC70
# asyncpg raises these when the server is gone, or refuses; the last when it is about to be gone.
FAULTS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# asyncpg raises these when values can't be stored; the connection is as good as before.
REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, UnicodeError)

_DIALECT = beat_sql.Dialect(
    distinct="IS DISTINCT FROM",
    json_object="json_build_object({})::text",
    gone="$2::bigint",
    now="$3::bigint",
)
_UP = "up AS w WHERE true"
_NUMBER = f""",
numbered AS ({telling.NUMBERED}),
bumped AS ({telling.BUMP} RETURNING tenant_id, n)
{telling.append("numbered", "bumped")} RETURNING tenant_id"""
_TELL = f""",
ended AS ({telling.end_spells(_UP)}),
told AS ({telling.told(_DIALECT, _UP)}){_NUMBER}"""

# One plan fits every batch, and to make one takes as long as to commit a few beats.
# The server ends by itself what we no longer wait for: else it would queue for a lock for ever.
SET_UP = f"""
SET plan_cache_mode = force_generic_plan;
SET lock_timeout = {round(LOCK_SECONDS * 1000)};
SET statement_timeout = {ATTEMPT_SECONDS * 1000}"""
REACH = "SELECT NULL WHERE false"
COMMIT = f"""
WITH up AS (
  {beat_sql.upsert(_DIALECT, "unnest($1::beat[]) AS b")} RETURNING w.*){_TELL}"""
ANNOUNCE_LOST = f"""
WITH quiet AS (
  SELECT tenant_id, agent_id FROM workers
  WHERE (tenant_id, agent_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
    AND reported = 'online' AND last_seen < $3::bigint
  ORDER BY tenant_id, agent_id FOR UPDATE SKIP LOCKED),
up AS (
  UPDATE workers AS w SET {beat_sql.lose(_DIALECT)}
  FROM quiet AS q WHERE w.tenant_id = q.tenant_id AND w.agent_id = q.agent_id
  RETURNING w.*){_TELL}"""

REMOVE = f"""
WITH victims AS (
  SELECT tenant_id, agent_id FROM workers
  WHERE (tenant_id, agent_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
    AND last_seen < $3::bigint
  ORDER BY tenant_id, agent_id FOR UPDATE),
up AS (
  DELETE FROM workers AS w USING victims AS v
  WHERE w.tenant_id = v.tenant_id AND w.agent_id = v.agent_id RETURNING w.*),
ended AS ({telling.cut_off_spells(_UP, "$4::bigint")}),
audited AS (
  {audit.WRITE}
  SELECT min(tenant_id), $4::bigint, $5::text, $6::text, $7::text,
         json_build_object('workers', count(*))::text
  FROM up WHERE $5::text IS NOT NULL HAVING count(*) > 0),
told AS ({telling.removed(_DIALECT, _UP, "$4::bigint")}){_NUMBER}"""


class CloudStore(RelationalStore):
    def __init__(self, url: str, *, direct_url: str | None = None, pool_size: int = 5) -> None:
        super().__init__()
        self.url = url
        self._direct_dsn = _dsn(direct_url or url)
        self._engine = _engine(
            _dsn(url),
            statement_seconds=STATEMENT_SECONDS,
            pool_size=pool_size,
            max_overflow=0,  # one more would be a new connection for each use
            pool_timeout=STATEMENT_SECONDS,
        )
        event.listen(self._engine.sync_engine, "checkout", _look_over)
        self._reads = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._writer: asyncpg.Connection | None = None
        self._statements: dict[str, Any] = {}
        # Beats and the sweep take turns on it: a connection runs one statement at a time.
        self._turn = asyncio.Lock()
        self._wakeups = Wakeups(self._direct_dsn, self._wake)
        # How long one use of the pool may take, for a collector; a person waits for each statement.
        self._seconds: float | None = None

    async def open(self, *, serving: bool = False) -> None:
        """Reach the server; any number of collectors may serve, and hear from one another."""
        if serving:
            self._seconds = STATEMENT_SECONDS
        await self.time()
        if serving:
            self._wakeups.open()

    async def close(self) -> None:
        await self._wakeups.close()
        await self._drop_writer()
        # The server ends the connections that are left.
        with suppress(TimeoutError, *FAULTS):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._engine.dispose()

    def abandon(self) -> None:
        """Nothing of ours is left behind: the server ends what has no client."""

    async def time(self) -> int:
        microseconds = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return await self._read(lambda conn: int(conn.execute(microseconds).scalar_one()))

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        if not beats:
            return frozenset()
        return await self._tell(COMMIT, beats, gone, now)

    async def announce_lost(self, silent: Sequence[Silent], *, before: int) -> frozenset[str]:
        if not silent:
            return frozenset()
        tenants, agents, _ = zip(*silent, strict=True)
        return await self._tell(ANNOUNCE_LOST, tenants, agents, before)

    async def remove(
        self,
        tenant_id: str,
        agent_ids: Sequence[str],
        *,
        now: int,
        before: int = NEVER,
        act: Act | None = None,
    ) -> int:
        names = sorted(set(agent_ids))
        by = (act.actor, act.action, act.subject) if act else (None, None, None)
        return len(await self._told(REMOVE, [tenant_id] * len(names), names, before, now, *by))

    async def forget(self, *, before: int, limit: int, now: int) -> frozenset[str]:
        old = await self._read(workers.forgettable, before, limit)
        if not old:
            return frozenset()
        tenants, agents, _ = zip(*old, strict=True)
        return await self._tell(REMOVE, tenants, agents, before, now, None, None, None)

    async def listen(self, collector_id: str, *, now: int) -> Gap | None:
        # Behind the beats, on their connection: who can't commit them does not listen.
        await self._tell(COMMIT, [], NO_GAP, now)
        return await super().listen(collector_id, now=now)

    async def migrate(self) -> None:
        # One direct connection holds the lock and runs the history: a pooler would split them.
        engine = _engine(self._direct_dsn, statement_seconds=None)
        try:
            async with _translated(), engine.connect() as conn, _migration_lock(conn):
                await conn.run_sync(migrations.upgrade)
                await conn.commit()
        finally:
            await engine.dispose()

    async def _read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with _translated(), asyncio.timeout(self._seconds), self._reads.connect() as conn:
            return await conn.run_sync(work, *args, **kwargs)

    async def _write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with _translated(), asyncio.timeout(self._seconds), self._engine.begin() as conn:
            return await conn.run_sync(work, *args, **kwargs)

    async def _tell(self, sql: str, *args: object) -> frozenset[str]:
        """Run one of the writer's statements; return the tenants whose log grew."""
        return frozenset(await self._told(sql, *args))

    async def _told(self, sql: str, *args: object) -> list[str]:
        """The tenant of each new line; whatever hangs, this ends in time."""
        async with _translated(), asyncio.timeout(ATTEMPT_SECONDS), self._turn:
            rows = await self._fetched(sql, *args)
        told = [row[0] for row in rows]
        if told:
            self._wake(frozenset(told))
            self._wakeups.say(frozenset(told))
        return told

    async def _fetched(self, sql: str, *args: object) -> list[Any]:
        """The rows of a statement; a connection that failed, or was given up, is not used again."""
        try:
            statement = await self._prepared(sql)
            rows: list[Any] = await statement.fetch(*args)
        except REFUSED:
            raise
        except (*FAULTS, asyncio.CancelledError):
            await self._drop_writer()
            raise
        return rows

    async def _prepared(self, sql: str) -> Any:
        if self._writer is None or self._writer.is_closed():
            self._statements = {}
            self._writer = await asyncpg.connect(self._direct_dsn, timeout=CONNECT_SECONDS)
            await self._writer.execute(SET_UP, timeout=STATEMENT_SECONDS)
        if sql not in self._statements:
            self._statements[sql] = await self._writer.prepare(sql)
        return self._statements[sql]

    async def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.terminate()
        self._writer = None


def _dsn(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _engine(dsn: str, *, statement_seconds: float | None, **pool: Any) -> AsyncEngine:
    """Connections made by asyncpg from the URL itself, which so means the same to all of them."""

    async def connect(**_arguments: object) -> asyncpg.Connection:
        return await asyncpg.connect(
            dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=statement_seconds,
            statement_cache_size=0,
        )

    return create_async_engine(
        "postgresql+asyncpg://",
        connect_args={
            "async_creator_fn": connect,
            "prepared_statement_cache_size": 0,
            # Unnamed, so that there is none to close when it has run.
            "prepared_statement_name_func": lambda: "",
        },
        **pool,
    )


def _look_over(connection: AdaptedConnection, *_: object) -> None:
    """Replace connections that a restart of the server ended; one trip, of pool_pre_ping's four."""
    try:
        connection.run_async(lambda driver: driver.execute(REACH))
    except FAULTS as error:
        raise InvalidatePoolError from error


@asynccontextmanager
async def _migration_lock(conn: AsyncConnection) -> AsyncIterator[None]:
    """Polled: a waiter blocked in the server would deadlock with CREATE INDEX CONCURRENTLY."""
    attempt = text("SELECT pg_try_advisory_lock(:lock)").bindparams(lock=MIGRATION_LOCK)
    try:
        async with asyncio.timeout(MIGRATION_WAIT_SECONDS):
            while not await _committed(conn, attempt):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise StoreUnavailable("another migration is under way, and does not end") from None
    try:
        yield
    finally:
        await _committed(conn, text(f"SELECT pg_advisory_unlock({MIGRATION_LOCK})"))


async def _committed(conn: AsyncConnection, statement: Any) -> Any:
    value = (await conn.execute(statement)).scalar_one()
    await conn.commit()
    return value


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    """Turn what asyncpg and SQLAlchemy raise into the store's own errors."""
    try:
        yield
    except StoreError:
        raise
    except DBAPIError as error:
        raise _store_error(_cause(error)) from error
    except SQLAlchemyError as error:  # the pool has run out, for one
        raise StoreUnavailable(f"PostgreSQL: {error}") from error
    except (*FAULTS, UnicodeError) as error:
        raise _store_error(error) from error


def _cause(error: DBAPIError) -> BaseException:
    """What asyncpg raised, under SQLAlchemy's two wrappings."""
    wrapped = error.orig or error
    return wrapped.__cause__ or wrapped


def _store_error(error: BaseException) -> StoreError:
    if isinstance(error, REFUSED):
        return Unstorable("PostgreSQL refuses these values")
    return StoreUnavailable(f"PostgreSQL: {type(error).__name__}: {error}")
