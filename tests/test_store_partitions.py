"""The cloud store's tables in parts, by tenant: as an engine like Citus would keep them apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest
from hypothesis import settings
from sqlalchemy import Connection, event, func, inspect, literal_column, select

from collector.settings import Settings
from collector.store.cloud import CloudStore
from collector.store.open import store_for
from collector.store.schema import events
from collector.values import NO_GAP, RosterQuery
from conformance.case import all_cases
from conformance.launcher import launched_on
from conformance.partitions import PARTS, WHOLE, partition
from conformance.runner import run
from conformance.store import concurrent, machine
from tests.conftest import BACKENDS
from tests.databases import TEMPLATE, Databases, administer
from tests.factories import at, beat
from tests.test_migrations import found_names
from tests.test_store_conformance import BOUNDED, FEW_EXAMPLES

on_postgresql = pytest.mark.parametrize("backend", BACKENDS[1:], indirect=True)
# Tests that are not coroutines have asynchronous fixtures too.
pytestmark = pytest.mark.usefixtures("anyio_backend")

RACES = settings(BOUNDED, max_examples=50)
TENANTS = [f"tenant-{n}" for n in range(20)]
Call = Callable[[CloudStore], Awaitable[object]]


@pytest.fixture
async def migrated_url(backend: str, databases: Databases) -> str:
    return await databases.made(backend, TEMPLATE)


@pytest.fixture
async def partitioned_url(migrated_url: str) -> str:
    await administer(migrated_url, partition())
    return migrated_url


@pytest.fixture
async def partitioned(partitioned_url: str) -> AsyncIterator[CloudStore]:
    """Open, with a worker of each of many tenants."""
    store = CloudStore(partitioned_url)
    await store.open()
    beats = [beat(tenant_id=tenant) for tenant in sorted(TENANTS)]
    await store.commit(beats, now=at(0), gone=NO_GAP)
    yield store
    await store.close()


# What is in parts, and what is not


def keys_of(conn: Connection) -> dict[str, list[list[str | None]]]:
    """The columns of each table's primary key and unique indexes, in their order."""
    found = inspect(conn)
    return {
        table: [
            list[str | None](found.get_pk_constraint(table)["constrained_columns"]),
            *(each["column_names"] for each in found.get_indexes(table) if each["unique"]),
        ]
        for table in found.get_table_names()
    }


@on_postgresql
async def test_a_table_is_of_a_tenant_by_every_key_or_whole_for_a_reason(
    backend: str, databases: Databases
) -> None:
    store = CloudStore(await databases.migrated(backend))

    keys = await store._read(keys_of)

    not_by_tenant = {
        table for table, each in keys.items() if any(columns[0] != "tenant_id" for columns in each)
    }
    assert not_by_tenant == set(WHOLE)
    await store.close()


def parts_of(conn: Connection) -> dict[str, list[str]]:
    rows = conn.exec_driver_sql(
        "SELECT inhparent::regclass::text, pg_get_expr(c.relpartbound, c.oid)"
        " FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid"
        " WHERE c.relkind = 'r' ORDER BY c.relname"
    )
    found: dict[str, list[str]] = {}
    for table, bound in rows:
        found.setdefault(table, []).append(bound)
    return found


@on_postgresql
async def test_every_other_table_is_in_parts_by_a_hash_of_the_tenant(
    partitioned: CloudStore,
) -> None:
    bounds = [f"FOR VALUES WITH (modulus {PARTS}, remainder {part})" for part in range(PARTS)]

    tables = {"audit", "event_counters", "events", "spells", "workers"}
    assert await partitioned._read(parts_of) == dict.fromkeys(tables, bounds)


def shape(conn: Connection) -> dict[str, Any]:
    """All that a table says of its columns, keys and indexes; its options are its parts'."""
    found = inspect(conn)
    tables = [name for name in found.get_table_names() if not re.search(r"_\d$", name)]
    options = conn.exec_driver_sql(
        "SELECT DISTINCT regexp_replace(relname, '_[0-9]$', ''), reloptions FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND reloptions <> '{}'"
    )
    return {
        "options": [tuple(row) for row in options],
        "names": found_names(conn),
        **{
            table: (
                [{**c, "type": repr(c["type"])} for c in found.get_columns(table)],
                found.get_pk_constraint(table),
                sorted(found.get_check_constraints(table), key=lambda check: str(check["name"])),
                [
                    {key: value for key, value in index.items() if key != "dialect_options"}
                    for index in found.get_indexes(table)
                ],
            )
            for table in tables
        },
    }


@on_postgresql
async def test_a_table_in_parts_is_what_the_migrations_made(migrated_url: str) -> None:
    store = CloudStore(migrated_url)
    whole = await store._read(shape)

    await administer(migrated_url, partition())

    in_parts = await store._read(shape)
    assert in_parts == whole
    assert in_parts["options"] == [("workers", ["fillfactor=70"])]
    await store.close()


@on_postgresql
async def test_a_store_that_is_used_is_left_alone(migrated_url: str) -> None:
    store = CloudStore(migrated_url)
    await store.commit([beat()], now=at(0), gone=NO_GAP)

    with pytest.raises(asyncpg.RaiseError, match="only an unused store"):
        await administer(migrated_url, partition())

    assert await store.worker("acme", "worker-1") is not None
    await store.close()


# What the suites say


@on_postgresql
def test_in_parts_the_store_does_what_the_model_does(partitioned_url: str) -> None:
    store = store_for(Settings(store_url=partitioned_url))

    machine.prove({"partitioned": store}, settings=FEW_EXAMPLES)


@on_postgresql
def test_in_parts_calls_at_once_end_as_some_order_of_them_would(partitioned_url: str) -> None:
    doors = [store_for(Settings(store_url=partitioned_url)) for _ in range(4)]

    concurrent.prove(doors, settings=RACES)


@pytest.mark.parametrize("backend", BACKENDS[1:2], indirect=True)
async def test_in_parts_the_collector_keeps_the_core_of_the_contract(partitioned_url: str) -> None:
    async with launched_on(partitioned_url, "partitioned") as target:
        results = await run(target, [case for case in all_cases() if case.level == "core"])

    assert [each for each in results.outcomes if each.result != "passed"] == []
    store = CloudStore(partitioned_url)
    assert await store._read(parts_of_tenants, ["tenant-a", "tenant-b"]) == 2
    await store.close()


def parts_of_tenants(conn: Connection, tenants: list[str]) -> int:
    """Two tenants in one part would prove little."""
    seen = select(func.count(literal_column("tableoid").distinct())).select_from(events)
    return conn.execute(seen.where(events.c.tenant_id.in_(tenants))).scalar_one()


# Who asks how many parts


async def parts_read(store: CloudStore, call: Call) -> dict[str, int]:
    """How many parts of each table this call's statements ask."""
    plans: list[Any] = []

    def explain(conn: Connection, _: object, statement: str, given: Any, *_more: object) -> None:
        if statement.startswith("EXPLAIN"):
            return
        # What only reads is run, to leave out what its plan names and then passes over.
        how = "ANALYZE, " if statement.lstrip().startswith(("SELECT", "WITH")) else ""
        explained = conn.exec_driver_sql(f"EXPLAIN ({how}FORMAT JSON) {statement}", given)
        plans.append(explained.scalar_one())

    event.listen(store._engine.sync_engine, "before_cursor_execute", explain)
    await call(store)
    event.remove(store._engine.sync_engine, "before_cursor_execute", explain)
    parts = {name for plan in plans for name in tables_in(plan) if re.search(r"_\d$", name)}
    return dict(Counter(name[:-2] for name in parts))


def tables_in(plan: Any) -> Iterator[str]:
    if isinstance(plan, dict):
        if "Relation Name" in plan and plan.get("Actual Loops", 1):
            yield plan["Relation Name"]
        plan = list(plan.values())
    if isinstance(plan, list):
        for each in plan:
            yield from tables_in(each)


OF_ONE_TENANT: dict[str, Call] = {
    "roster": lambda s: s.roster("tenant-1", RosterQuery(), now=at(1)),
    "page of the roster": lambda s: s.roster("tenant-1", RosterQuery(limit=10), now=at(1)),
    "worker": lambda s: s.worker("tenant-1", "worker-1"),
    "summary": lambda s: s.summary("tenant-1", now=at(1)),
    "snapshot": lambda s: s.snapshot("tenant-1", RosterQuery(), now=at(1)),
    "events": lambda s: s.events("tenant-1", after=0, limit=10),
    "news": lambda s: s.news({"tenant-1": 0}, limit=10),
    "events of a worker": lambda s: s.worker_events("tenant-1", "worker-1", since=0, limit=10),
    "spells": lambda s: s.spells("tenant-1", "worker-1", since=0),
    "presence": lambda s: s.presence("tenant-1", since=at(0), step=1, steps=2),
    "audit": lambda s: s.audit("tenant-1", before=None, limit=10),
    "holdings": lambda s: s.holdings("tenant-1"),
    "removal of the tenant": lambda s: s.remove_tenant("tenant-1", now=at(1)),
}
OF_ALL_TENANTS: dict[str, Call] = {
    "silent": lambda s: s.silent(before=at(1), limit=10),
    "live workers": lambda s: s.live_workers(now=at(1)),
    "tenants": lambda s: s.tenants(now=at(1)),
    "forget": lambda s: s.forget(before=at(-1), limit=10, now=at(1)),
    "prune events": lambda s: s.prune_events(before=at(-1), keep=100, limit=10),
    "prune spells": lambda s: s.prune_spells(before=at(-1), limit=10),
    "prune the audit": lambda s: s.prune_audit(before=at(-1), limit=10),
}


@on_postgresql
async def test_what_is_of_one_tenant_is_asked_of_one_part(partitioned: CloudStore) -> None:
    reads = {name: await parts_read(partitioned, call) for name, call in OF_ONE_TENANT.items()}

    assert {name: {*read.values()} for name, read in reads.items()} == {name: {1} for name in reads}


@on_postgresql
async def test_what_is_of_all_tenants_is_asked_of_every_part(partitioned: CloudStore) -> None:
    reads = {name: await parts_read(partitioned, call) for name, call in OF_ALL_TENANTS.items()}

    every = {name: {PARTS} for name in reads}
    assert {name: {*read.values()} for name, read in reads.items()} == every
