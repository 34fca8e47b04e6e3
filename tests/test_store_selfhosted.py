"""What only the embedded store can suffer."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from collector.errors import StoreUnavailable
from collector.store import selfhosted
from collector.store.selfhosted import SelfHostedStore
from collector.values import NO_GAP
from tests.factories import at, beat


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SelfHostedStore]:
    made = SelfHostedStore(tmp_path / "store.db")
    await made.open()
    await made.migrate()
    yield made
    await made.close()


class Failing:
    """A connection that fails in the middle of a batch, and to take it back."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql in (selfhosted.UPSERT, "ROLLBACK"):
            raise sqlite3.OperationalError("disk I/O error")
        return self._raw.execute(sql, *values)


async def test_a_batch_that_can_not_even_be_taken_back_costs_the_next_one_nothing(
    store: SelfHostedStore,
) -> None:
    await store.commit([beat("before")], now=at(0), gone=NO_GAP)
    broken: Any = Failing(store._beats)  # type: ignore[arg-type]
    store._beats = broken

    with pytest.raises(StoreUnavailable):
        await store.commit([beat("lost")], now=at(1), gone=NO_GAP)

    await store.commit([beat("after")], now=at(2), gone=NO_GAP)
    assert await store.worker("acme", "after") is not None
    assert await store.worker("acme", "lost") is None
    # Nor does anybody else wait for it.
    await store.use_keys(["nobody's"], now=at(3))
