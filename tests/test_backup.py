"""Backups of the embedded store: taken under load, read back, and restored."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx2
import pytest

from collector.errors import StoreTaken
from collector.store import backup, migrations
from collector.store.schema import HEAD
from collector.store.selfhosted import _engine
from tests.factories import body
from tests.processes import Serving, create_key, run, wait_until
from tests.terminal import run_on_terminal

ROOT = Path(__file__).parents[1]
HEARTBEAT = "/v1/agents/heartbeat"
EVERYTHING = "ingest,read,admin"
THREADS = 6
STATUSES = ("idle", "busy", "offline")
TOLD = ("agent_name", "status", "active_sessions", "project", "region")

pytestmark = pytest.mark.usefixtures("anyio_backend")


class Embedded:
    """An embedded store of its own, with a key; and commands on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def run(self, *args: str) -> CompletedProcess[str]:
        return run(*args, env={"COLLECTOR_STORE_URL": self.url}, cwd=self.path.parent)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as conn:
            return conn.execute(sql).fetchall()

    def beat(self, *agent_ids: str, key: str) -> None:
        with Serving(self.url, self.path.parent) as serving, client(serving, key) as http:
            for agent_id in agent_ids:
                assert http.post(HEARTBEAT, json=body(agent_id)).status_code == 202

    def kept(self) -> Path:
        """The store that a restore replaced."""
        (found,) = self.path.parent.glob("*.before-*Z")
        return found

    def workers(self) -> set[str]:
        return {agent_id for (agent_id,) in self.rows("SELECT agent_id FROM workers")}


@pytest.fixture
def store(tmp_path: Path, migrated_file: Path) -> Embedded:
    place = tmp_path / "store"
    place.mkdir()
    return Embedded(Path(shutil.copy(migrated_file, place / "collector.db")))


def client(serving: Serving, key: str) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.Client(base_url=serving.url, headers=headers, trust_env=False, timeout=30)


@contextmanager
def load(serving: Serving, keys: list[str]) -> Iterator[list[int]]:
    """Workers of each key's tenant that come, change and leave, until the end of the block."""
    ending, taken = threading.Event(), [0] * THREADS

    def beat(thread: int) -> None:
        with client(serving, keys[thread % len(keys)]) as http:
            for n in count():
                sent = body(f"w-{thread}-{n % 40}", status=STATUSES[n % 3], active_sessions=n % 5)
                assert http.post(HEARTBEAT, json=sent).status_code == 202
                taken[thread] += 1
                if ending.is_set():
                    return

    threads = [threading.Thread(target=beat, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield taken
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def heads(told: dict[str, Any]) -> dict[str, int]:
    return {each["tenant"]: int(each["cursor"].split(".")[1]) for each in told["tenants"]}


def log(store: Embedded, upto: dict[str, int]) -> list[tuple[Any, ...]]:
    lines = store.rows("SELECT * FROM events ORDER BY tenant_id, n")
    return [line for line in lines if line[1] <= upto[line[0]]]


def roster_of_log(lines: list[tuple[Any, ...]]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Who is there after these lines, by what each line says of its worker."""
    there = {}
    for tenant, _, kind, _, _, agent_id, worker in lines:
        there[tenant, agent_id] = tuple(json.loads(worker)[name] for name in TOLD)
        if kind == "removed":
            del there[tenant, agent_id]
    return there


def test_a_backup_under_load_is_the_roster_and_the_log_at_its_cursor(
    store: Embedded, tmp_path: Path
) -> None:
    keys = [create_key(store.url, f"tenant-{each}", EVERYTHING)["key"] for each in "ab"]
    file = tmp_path / "copy"
    with Serving(store.url, tmp_path) as serving:
        with load(serving, keys) as taken:
            wait_until(lambda: min(taken) > 30)
            backed_up = store.run("backup", str(file), "--json")
            done = sum(taken)
            wait_until(lambda: sum(taken) > done + 60)
        serving.stop()
    assert backed_up.returncode == 0, backed_up.stderr
    told = json.loads(backed_up.stdout)
    copied, upto = Embedded(file), heads(told)

    written = log(store, upto)
    assert log(copied, upto) == copied.rows("SELECT * FROM events ORDER BY tenant_id, n") == written
    rows = copied.rows(f"SELECT tenant_id, agent_id, {', '.join(TOLD)} FROM workers")
    assert {row[:2]: row[2:] for row in rows} == roster_of_log(written)
    assert (told["workers"], told["events"], told["keys"]) == (len(rows), len(written), 2)
    # It was under way: the served log went on from there.
    assert len(store.rows("SELECT 1 FROM events")) > len(written) > 100

    again = Embedded(tmp_path / "elsewhere" / "collector.db")
    again.path.parent.mkdir()
    restored = again.run("restore", str(file), "--yes", "--json")
    assert restored.returncode == 0, restored.stderr
    assert log(again, upto) == written
    _is_served_like_any_other(again, keys, told, tmp_path)


def _is_served_like_any_other(
    store: Embedded, keys: list[str], told: dict[str, Any], tmp_path: Path
) -> None:
    with Serving(store.url, tmp_path) as serving:
        with client(serving, keys[0]) as http:
            roster = http.get("/v1/agents").json()["workers"]
            polled = http.get("/v1/events", params={"after": told["tenants"][0]["cursor"]}).json()
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "conformance", "--target", serving.url),
                *("--key", keys[0], "--other-key", keys[1]),
                *("--rule", "R1", "--rule", "R2", "--rule", "R31"),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )

    assert len(roster) == told["tenants"][0]["workers"]
    assert polled["events"][0]["type"] == "snapshot"
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_copy_is_of_the_moment_it_began_whatever_is_written_meanwhile(
    store: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "STEP_PAGES", 1)
    steps = count()
    with closing(sqlite3.connect(store.path)) as writer:

        def write(_done: int, _total: int) -> None:
            with writer:
                writer.execute("INSERT INTO collectors VALUES (?, 0)", (str(next(steps)),))

        backup.copy(store.path, tmp_path / "copy", write)

    assert next(steps) > 5
    assert Embedded(tmp_path / "copy").rows("SELECT * FROM collectors") == []


def test_a_backup_is_one_file_for_its_owner_alone(store: Embedded, tmp_path: Path) -> None:
    place = tmp_path / "copies"
    place.mkdir()

    shown = store.run("backup", str(place / "copy"))

    assert shown.returncode == 0, shown.stderr
    assert f"schema {HEAD}, 0 workers, 0 events, 0 keys." in shown.stdout
    assert [each.name for each in place.iterdir()] == ["copy"]
    assert (place / "copy").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_is_replaced_only_by_force(store: Embedded, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    file.write_text("mine")

    refused = store.run("backup", str(file))
    kept = file.read_text()
    forced = store.run("backup", "--force", str(file))

    assert (refused.returncode, kept) == (4, "mine")
    assert "--force" in refused.stderr
    assert (forced.returncode, file.read_bytes()[:6]) == (0, b"SQLite")


def test_a_store_is_not_backed_up_onto_itself(store: Embedded) -> None:
    refused = store.run("backup", "--force", str(store.path))

    assert refused.returncode == 2
    assert "the store itself" in refused.stderr


def test_a_directory_that_is_not_there_is_named(store: Embedded, tmp_path: Path) -> None:
    refused = store.run("backup", str(tmp_path / "nowhere" / "copy"))

    assert refused.returncode == 2
    assert f"there is no directory {tmp_path / 'nowhere'}" in refused.stderr


def test_backing_up_where_there_is_no_store_makes_none(tmp_path: Path) -> None:
    refused = run("backup", "copy", env={}, cwd=tmp_path)

    assert refused.returncode == 3
    assert "COLLECTOR_STORE_URL" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_restore_brings_back_what_was_and_keeps_what_is(store: Embedded, tmp_path: Path) -> None:
    key, file = create_key(store.url)["key"], tmp_path / "copy"
    store.beat("before", key=key)
    store.run("backup", str(file))
    store.beat("after", key=key)

    restored = store.run("restore", str(file), "--yes")

    assert restored.returncode == 0, restored.stderr
    assert store.workers() == {"before"}
    kept = store.kept()
    assert f"kept as {kept}" in restored.stdout
    assert Embedded(kept).workers() == {"before", "after"}
    assert {each.stat().st_mode & 0o777 for each in (store.path, kept)} == {0o600}


def test_every_restore_has_an_epoch_of_its_own(store: Embedded, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    epochs = [json.loads(store.run("backup", str(file), "--json").stdout)["epoch"]]

    for _ in range(2):
        restored = store.run("restore", str(file), "--yes", "--json")
        epochs.append(json.loads(restored.stdout)["epoch"])

    assert len(set(epochs)) == 3
    assert store.rows("SELECT epoch FROM log_epoch") == [(epochs[-1],)]


def test_the_log_of_a_collector_that_was_killed_goes_with_its_store(
    store: Embedded, tmp_path: Path
) -> None:
    key, file = create_key(store.url)["key"], tmp_path / "copy"
    store.run("backup", str(file))
    with Serving(store.url, tmp_path) as serving, client(serving, key) as http:
        assert http.post(HEARTBEAT, json=body("last")).status_code == 202
        serving.kill()
    assert store.path.with_name("collector.db-wal").stat().st_size > 0

    restored = store.run("restore", str(file), "--yes")

    assert restored.returncode == 0, restored.stderr
    assert store.workers() == set()
    kept = store.kept()
    assert Embedded(kept).workers() == {"last"}


def test_a_store_that_is_damaged_can_be_restored_and_is_kept(
    store: Embedded, tmp_path: Path
) -> None:
    key, file = create_key(store.url)["key"], tmp_path / "copy"
    store.run("backup", str(file))
    with Serving(store.url, tmp_path) as serving, client(serving, key) as http:
        assert http.post(HEARTBEAT, json=body("last")).status_code == 202
        serving.kill()
    store.path.write_bytes(b"not a database, by now" * 1000)

    refused = store.run("backup", str(tmp_path / "another"))
    restored = store.run("restore", str(file), "--yes")

    assert refused.returncode == 3
    assert not (tmp_path / "another").exists()
    assert restored.returncode == 0, restored.stderr
    kept = store.kept()
    assert kept.read_bytes().startswith(b"not a database")
    assert (store.workers(), store.rows("PRAGMA integrity_check")) == (set(), [("ok",)])


def test_a_log_that_lost_its_store_does_not_meet_another(store: Embedded, tmp_path: Path) -> None:
    key, file = create_key(store.url)["key"], tmp_path / "copy"
    store.run("backup", str(file))
    with Serving(store.url, tmp_path) as serving, client(serving, key) as http:
        assert http.post(HEARTBEAT, json=body("last")).status_code == 202
        serving.kill()
    store.path.unlink()

    restored = store.run("restore", str(file), "--yes")

    assert restored.returncode == 0, restored.stderr
    assert (store.workers(), store.rows("PRAGMA integrity_check")) == (set(), [("ok",)])


def test_a_store_that_another_command_has_open_is_left_alone(
    store: Embedded, tmp_path: Path
) -> None:
    file = tmp_path / "copy"
    store.run("backup", str(file))

    with closing(sqlite3.connect(store.path)) as command:
        command.execute("SELECT count(*) FROM workers").fetchone()
        refused = store.run("restore", str(file), "--yes")
    restored = store.run("restore", str(file), "--yes")

    assert (refused.returncode, restored.returncode) == (4, 0)
    assert "end it first" in refused.stderr


def test_what_is_replaced_is_not_kept_when_told_so(store: Embedded, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    store.run("backup", str(file))

    restored = store.run("restore", str(file), "--yes", "--discard")

    assert restored.returncode == 0, restored.stderr
    assert list(store.path.parent.glob("*.before-*")) == []


def test_nothing_is_restored_while_a_collector_serves(store: Embedded, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    store.run("backup", str(file))
    before = store.rows("SELECT epoch FROM log_epoch")

    with Serving(store.url, tmp_path):
        refused = store.run("restore", str(file), "--yes")

    assert refused.returncode == 4
    assert "stop it first" in refused.stderr
    assert store.rows("SELECT epoch FROM log_epoch") == before


def test_a_collector_that_starts_before_the_restore_does_wins(
    store: Embedded, tmp_path: Path
) -> None:
    file = tmp_path / "copy"
    store.run("backup", str(file))

    with Serving(store.url, tmp_path), pytest.raises(StoreTaken):
        backup.restore(file, store.path, keep=None, tell=lambda *_: None)

    assert store.rows("SELECT count(*) FROM log_epoch") == [(1,)]


def test_nothing_is_restored_unless_somebody_says_yes(store: Embedded, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    store.run("backup", str(file))
    before = store.rows("SELECT epoch FROM log_epoch")

    unasked = store.run("restore", str(file))

    assert unasked.returncode == 1
    assert store.rows("SELECT epoch FROM log_epoch") == before


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as conn, conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")


def somebody_elses(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as conn, conn:
        conn.execute("CREATE TABLE alembic_version (version_num)")


def damaged(file: Path) -> None:
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (file.stat().st_size - 4096))


def cut_off(file: Path) -> None:
    with file.open("r+b") as raw:
        raw.truncate(file.stat().st_size // 2)


def text(file: Path) -> None:
    file.write_text("a letter")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (newer, "newer version.+update the collector first"),
        (somebody_elses, "has no table event_counters"),
        (damaged, "damaged|malformed|neither"),
        (cut_off, "damaged|malformed|neither"),
        (text, "not a database"),
    ],
)
def test_a_file_that_is_no_whole_backup_of_ours_is_refused(
    spoil: Any, said: str, store: Embedded, tmp_path: Path
) -> None:
    file = tmp_path / "copy"
    store.run("backup", str(file))
    before = store.rows("SELECT epoch FROM log_epoch")
    spoil(file)

    refused = store.run("restore", str(file), "--yes")

    assert refused.returncode == 4
    assert re.search(said, refused.stderr), refused.stderr
    assert store.rows("SELECT epoch FROM log_epoch") == before


def test_an_older_backup_is_brought_to_this_versions_schema(
    store: Embedded, tmp_path: Path
) -> None:
    file = tmp_path / "old"
    engine = _engine(file, begin="BEGIN", pool_size=1)
    with engine.begin() as conn:
        migrations.upgrade(conn, "0001")
    engine.dispose()

    restored = store.run("restore", str(file), "--yes", "--json")

    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["revision"] == HEAD
    assert store.run("keys", "list").returncode == 0


def test_keys_that_open_again_are_named(store: Embedded, tmp_path: Path) -> None:
    created, file = create_key(store.url), tmp_path / "copy"
    store.run("backup", str(file))
    store.run("keys", "revoke", created["id"])

    restored = store.run("restore", str(file), "--yes")

    assert restored.returncode == 0, restored.stderr
    assert f"open again: {created['id']}; revoke each anew" in restored.stderr


@pytest.mark.parametrize(("command", "tool"), [("backup", "pg_dump"), ("restore", "pg_restore")])
def test_on_postgresql_its_own_tools_are_named(command: str, tool: str, tmp_path: Path) -> None:
    env = {"COLLECTOR_STORE_URL": "postgresql://collector:secret@db.example/presence"}

    refused = run(command, "copy", env=env, cwd=tmp_path)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert tool in refused.stderr
    assert "secret" not in refused.stderr


def test_a_person_sees_how_far_it_is(store: Embedded, tmp_path: Path) -> None:
    file = str(tmp_path / "copy")

    shown = run_on_terminal("backup", file, env={"COLLECTOR_STORE_URL": store.url})

    assert "100%" in shown
    assert "%" not in store.run("backup", "--force", file).stderr
