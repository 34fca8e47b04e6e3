"""One history for both stores, and it makes what schema.py says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, inspect

from collector.settings import Settings
from collector.store import migrations
from collector.store.cloud import CloudStore
from collector.store.open import store_for
from collector.store.schema import HEAD, metadata
from collector.store.selfhosted import SelfHostedStore


async def opened(url: str) -> CloudStore | SelfHostedStore:
    store = store_for(Settings(store_url=url))
    assert isinstance(store, CloudStore | SelfHostedStore)
    await store.open()
    return store


def differences(conn: Connection) -> list[Any]:
    def belongs_here(item: Any, *_: object) -> bool:
        """Autogenerate does not ask what is for one dialect alone."""
        condition = getattr(item, "_ddl_if", None)
        return condition is None or condition.dialect == conn.dialect.name

    opts = {"compare_type": True, "include_object": belongs_here}
    return list(compare_metadata(MigrationContext.configure(conn, opts=opts), metadata))


def found_names(conn: Connection) -> dict[str, tuple[set[object], dict[str, object]]]:
    """What autogenerate does not compare: each table's keys and checks, and its collations."""
    found = inspect(conn)
    return {
        table: (
            {check["name"] for check in found.get_check_constraints(table)}
            | {found.get_pk_constraint(table)["name"]},
            {c["name"]: getattr(c["type"], "collation", None) for c in found.get_columns(table)},
        )
        for table in metadata.tables
    }


def expected_names(conn: Connection) -> dict[str, tuple[set[object], dict[str, object]]]:
    return {
        name: (
            {constraint.name for constraint in table.constraints},
            {
                c.name: getattr(c.type.dialect_impl(conn.dialect), "collation", None)
                for c in table.c
            },
        )
        for name, table in metadata.tables.items()
    }


async def test_migrating_an_empty_store_makes_the_schema(empty_store_url: str) -> None:
    store = await opened(empty_store_url)
    assert await store.behind() == "the store is empty"

    await store.migrate()

    assert await store.behind() is None
    assert await store._read(differences) == []
    assert await store._read(found_names) == await store._read(expected_names)
    await store.close()


async def test_migrations_at_once_wait_for_one_another(empty_store_url: str) -> None:
    stores = [await opened(empty_store_url) for _ in range(3)]

    await asyncio.gather(*(store.migrate() for store in stores))

    assert [await store.behind() for store in stores] == [None] * 3
    for store in stores:
        await store.close()


def test_head_is_the_newest_revision_of_the_history() -> None:
    files = (migrations.directory() / "versions").glob("[0-9]*.py")
    revisions = [re.search(r'^revision = "(.+)"$', f.read_text(), re.M) for f in files]

    assert max(found[1] for found in revisions if found) == HEAD


def test_a_missing_column_is_noticed(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/control.db")
    with engine.begin() as conn:
        metadata.create_all(conn)
        conn.exec_driver_sql("ALTER TABLE workers DROP COLUMN ts")

        assert [difference[0] for difference in differences(conn)] == ["add_column"]
    engine.dispose()
