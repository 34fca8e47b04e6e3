"""What only the embedded store can suffer."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from collector import keys
from collector.errors import StoreTaken, StoreUnavailable
from collector.store import selfhosted, sqlite_batches, writer, writer_process
from collector.store.selfhosted import SelfHostedStore, only_collector
from collector.values import NO_GAP
from conformance.processes import is_alive
from tests.factories import at, beat, body
from tests.processes import Serving, children, wait_until


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SelfHostedStore]:
    made = SelfHostedStore(tmp_path / "store.db")
    await made.open()
    await made.migrate()
    yield made
    await made.close()


def writers() -> set[int]:
    """Of this very process, which may have started others."""
    return {pid for pid in children(os.getpid()) if b"writer_process" in command(pid)}


def command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Failing:
    """A connection that fails in the middle of a batch, and to take it back."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql in (sqlite_batches.UPSERT, "ROLLBACK"):
            raise sqlite3.OperationalError("disk I/O error")
        return self._raw.execute(sql, *values)


async def test_a_batch_that_can_not_even_be_taken_back_costs_the_next_one_nothing(
    store: SelfHostedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    hand = writer_process.Hand(path)
    honest = sqlite_batches.connect
    monkeypatch.setattr(writer_process, "connect", lambda path: Failing(honest(path)))
    failed = hand.reply([beat("lost")], at(1), NO_GAP)
    monkeypatch.setattr(writer_process, "connect", honest)

    assert failed == ("StoreUnavailable", "SQLite: disk I/O error")
    assert hand.reply([beat("after")], at(2), NO_GAP) == ("", ["acme"])
    assert await store.worker("acme", "after") is not None
    assert await store.worker("acme", "lost") is None
    # Nor does anybody else wait for it.
    await store.use_keys(["nobody's"], now=at(3))


async def test_after_the_process_that_writes_has_died_another_one_does(
    store: SelfHostedStore,
) -> None:
    await store.commit([beat("before")], now=at(0), gone=NO_GAP)
    (died,) = writers()
    os.kill(died, signal.SIGKILL)

    # It may be noticed now or by the answer that does not come: then the intake tries again.
    with suppress(StoreUnavailable):
        await store.commit([beat("after")], now=at(1), gone=NO_GAP)
    await store.commit([beat("after")], now=at(1), gone=NO_GAP)

    assert await store.worker("acme", "after") is not None
    (another,) = writers()
    assert another != died


async def test_who_gives_up_leaves_no_answer_behind(store: SelfHostedStore, tmp_path: Path) -> None:
    await store.commit([beat("acme's")], now=at(0), gone=NO_GAP)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await store.commit([beat("new")], now=at(1), gone=NO_GAP)
        other.execute("ROLLBACK")

    unchanged = await store.commit([beat("acme's", seconds=2)], now=at(2), gone=NO_GAP)

    assert unchanged == frozenset()


async def test_who_can_not_write_beats_does_not_listen(
    store: SelfHostedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else everybody would be lost who could only not be heard."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(StoreUnavailable):
        await store.listen("us", now=at(0))
    assert await store.gaps(since=0) == []

    monkeypatch.undo()
    await store.listen("us", now=at(0))


async def test_a_process_that_hangs_is_ended_and_replaced(
    store: SelfHostedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit([beat("before")], now=at(0), gone=NO_GAP)
    (hanging,) = writers()
    os.kill(hanging, signal.SIGSTOP)
    monkeypatch.setattr(selfhosted, "ATTEMPT_SECONDS", 0.2)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await store.commit([beat("lost")], now=at(1), gone=NO_GAP)
    monkeypatch.undo()

    await store.commit([beat("after")], now=at(2), gone=NO_GAP)

    assert not is_alive(hanging)
    assert await store.worker("acme", "lost") is None


async def test_a_read_that_takes_too_long_is_told_and_its_thread_is_free_again(
    tmp_path: Path, migrated_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selfhosted, "STATEMENT_SECONDS", 0.2)
    endless = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n FROM n) SELECT count(*) FROM n"
    store = SelfHostedStore(Path(shutil.copy(migrated_file, tmp_path / "served.db")))
    await store.open(serving=True)

    async with asyncio.timeout(30):
        for _ in range(2 * selfhosted.READERS):
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await store._read(lambda conn: conn.exec_driver_sql(endless).all())
        assert await store.worker("acme", "nobody") is None
        await store.close()


async def test_a_write_that_was_given_up_before_it_began_is_not_made(
    tmp_path: Path, migrated_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selfhosted, "STATEMENT_SECONDS", 0.2)
    path = Path(shutil.copy(migrated_file, tmp_path / "served.db"))
    store = SelfHostedStore(path)
    await store.open(serving=True)
    key, _ = keys.mint("acme", ["read"], now=at(0))

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await store.add_key(key)
    store._seconds = 30
    # Behind it, in the one thread that writes.
    await store.use_keys(["nobody's"], now=at(1))

    assert await store.find_key(key.id) is None
    await store.close()


async def test_a_start_that_takes_long_is_waited_for_by_the_next_batch(
    store: SelfHostedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To end a process that only starts slowly would have it start for ever."""
    monkeypatch.setattr(selfhosted, "ATTEMPT_SECONDS", 0.001)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await store.commit([beat("first")], now=at(0), gone=NO_GAP)
    await asyncio.to_thread(wait_until, lambda: len(writers()) == 1)
    (starting,) = writers()
    monkeypatch.undo()

    await store.commit([beat("second")], now=at(1), gone=NO_GAP)

    assert writers() == {starting}


async def test_a_failed_start_that_nobody_waited_for_is_not_told_to_the_next_batch(
    store: SelfHostedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit([beat("before")], now=at(0), gone=NO_GAP)
    (hanging,) = writers()
    os.kill(hanging, signal.SIGSTOP)
    monkeypatch.setattr(selfhosted, "ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await store.commit([beat("lost")], now=at(1), gone=NO_GAP)
    while any(task.get_name() == "writer-start" for task in asyncio.all_tasks()):
        await asyncio.sleep(0)
    monkeypatch.undo()

    await store.commit([beat("after")], now=at(2), gone=NO_GAP)

    assert await store.worker("acme", "after") is not None


async def test_a_process_that_starts_while_the_store_is_closed_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "END_SECONDS", 10)
    made = writer.Writer(tmp_path / "store.db", lambda: None)
    opening = asyncio.create_task(made.open())
    while not made._processes:
        await asyncio.sleep(0)
    (process,) = made._processes

    await made.close()

    assert process.returncode == 0
    with suppress(StoreUnavailable):
        await opening


async def test_a_defect_of_the_process_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(writer_process, "connect", fail)

    name, said = writer_process.Hand(tmp_path / "store.db").reply([beat()], at(0), NO_GAP)

    assert name == writer_process.DEFECT
    assert "KeyError: 'a defect'" in said


def test_a_package_in_the_working_directory_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "collector").mkdir()
    (tmp_path / "collector" / "__init__.py").write_text("raise SystemExit('not ours')")

    with Serving(f"sqlite:///{tmp_path}/store.db", tmp_path) as serving:
        assert beaten(serving) == 202


async def test_a_closed_store_takes_no_beats(store: SelfHostedStore) -> None:
    await store.commit([beat("before")], now=at(0), gone=NO_GAP)
    await store.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        await store.commit([beat("after")], now=at(1), gone=NO_GAP)
    assert writers() == set()


def test_the_process_that_writes_ends_with_the_collector_and_not_before(tmp_path: Path) -> None:
    with Serving(f"sqlite:///{tmp_path}/store.db", tmp_path) as serving:
        assert beaten(serving) == 202
        (pid,) = children(serving.pid)
        # As somebody does who stops all processes of a service at once.
        os.kill(pid, signal.SIGTERM)
        assert beaten(serving) == 202
        assert children(serving.pid) == {pid}
        serving.kill()

        wait_until(lambda: not is_alive(pid))


def test_nobody_else_serves_a_store_that_is_still_written_to(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Serving(f"sqlite:///{path}", tmp_path) as serving:
        assert beaten(serving) == 202
        (pid,) = children(serving.pid)
        os.kill(pid, signal.SIGSTOP)
        serving.kill()

        with pytest.raises(StoreTaken):
            only_collector(path)

        os.kill(pid, signal.SIGCONT)
        only_collector(path).close()


def beaten(serving: Serving) -> int:
    key = {"Authorization": f"Bearer {serving.key}"}
    address = f"{serving.url}/v1/agents/heartbeat"
    return httpx2.post(address, json=body(), headers=key, timeout=20, trust_env=False).status_code


@pytest.mark.usefixtures("store")
async def test_a_new_store_has_small_pages(tmp_path: Path) -> None:
    assert page_bytes(tmp_path / "store.db") == sqlite_batches.PAGE_BYTES


async def test_a_store_with_other_pages_goes_on_with_them(tmp_path: Path) -> None:
    file = tmp_path / "older.db"
    with closing(sqlite3.connect(file)) as older:
        older.execute("PRAGMA page_size = 4096")
        older.execute("PRAGMA journal_mode = WAL")
    store = SelfHostedStore(file)
    await store.open()
    await store.migrate()

    await store.commit([beat()], now=at(0), gone=NO_GAP)

    await store.close()
    assert page_bytes(file) == 4096


def test_the_log_goes_into_the_file_now_and_then(tmp_path: Path) -> None:
    with closing(sqlite_batches.connect(tmp_path / "store.db")) as raw:
        (pages,) = raw.execute("PRAGMA wal_autocheckpoint").fetchone()

    assert pages == sqlite_batches.LOG_PAGES


def page_bytes(file: Path) -> int:
    with closing(sqlite3.connect(file)) as raw:
        return int(raw.execute("PRAGMA page_size").fetchone()[0])
