"""Backups of the embedded store: taken under load, read back, and restored."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shutil
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx2
import pytest

from collector.clock import SystemClock
from collector.errors import StoreTaken
from collector.store import backup, migrations
from collector.store.schema import HEAD
from collector.store.selfhosted import _engine
from conformance.case import all_cases
from conformance.launcher import launched_on
from conformance.runner import Results
from conformance.runner import run as conform
from tests.factories import at, body
from tests.processes import Serving, children, create_key, run, wait_until
from tests.terminal import run_on_terminal

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


def back_up_under_load(store: Embedded, keys: list[str], file: Path) -> dict[str, Any]:
    """What the command says of its copy; beats were taken before, meanwhile and after."""
    with Serving(store.url, file.parent) as serving:
        with load(serving, keys) as taken:
            wait_until(lambda: min(taken) > 30)
            backed_up = store.run("backup", str(file), "--json")
            done = sum(taken)
            wait_until(lambda: sum(taken) > done + 60)
        serving.stop()
    assert backed_up.returncode == 0, backed_up.stderr
    told: dict[str, Any] = json.loads(backed_up.stdout)
    return told


@pytest.fixture
def keys(store: Embedded) -> list[str]:
    """Of the tenants that the conformance suite, too, calls so."""
    return [create_key(store.url, f"tenant-{each}", EVERYTHING)["key"] for each in "ab"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Embedded:
    """A place without a store."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    return Embedded(place / "collector.db")


def test_a_backup_under_load_is_the_roster_and_the_log_at_its_cursor(
    store: Embedded, keys: list[str], tmp_path: Path
) -> None:
    told = back_up_under_load(store, keys, tmp_path / "copy")
    copied, upto = Embedded(tmp_path / "copy"), heads(told)

    written = log(store, upto)
    assert log(copied, upto) == copied.rows("SELECT * FROM events ORDER BY tenant_id, n") == written
    rows = copied.rows(f"SELECT tenant_id, agent_id, {', '.join(TOLD)} FROM workers")
    assert {row[:2]: row[2:] for row in rows} == roster_of_log(written)
    assert (told["workers"], told["events"], told["keys"]) == (len(rows), len(written), 2)
    # It was under way: the served log went on from there.
    assert len(store.rows("SELECT 1 FROM events")) > len(written) > 100


def test_a_restored_backup_is_served_with_all_that_it_holds(
    store: Embedded, keys: list[str], elsewhere: Embedded, tmp_path: Path
) -> None:
    told = back_up_under_load(store, keys, tmp_path / "copy")

    restored = elsewhere.run("restore", str(tmp_path / "copy"), "--yes")

    assert restored.returncode == 0, restored.stderr
    assert log(elsewhere, heads(told)) == log(store, heads(told))
    with Serving(elsewhere.url, tmp_path) as serving, client(serving, keys[0]) as http:
        roster = http.get("/v1/agents").json()["workers"]
        polled = http.get("/v1/events", params={"after": told["tenants"][0]["cursor"]}).json()
    assert len(roster) == told["tenants"][0]["workers"]
    assert polled["events"][0]["type"] == "snapshot"


def test_a_collector_on_a_restored_backup_keeps_the_contract(
    store: Embedded,
    keys: list[str],
    elsewhere: Embedded,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    back_up_under_load(store, keys, tmp_path / "copy")
    elsewhere.run("restore", str(tmp_path / "copy"), "--yes")

    # Some cases have a real deadline: two suites at once would be in each other's way.
    with (tmp_path_factory.getbasetemp().parent / "conformance.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        judged = asyncio.run(_judge(elsewhere))

    assert [each for each in judged.outcomes if each.result == "failed"] == []
    assert judged.is_clean
    # Only what needs a key that no collector of ours can have is left out.
    skipped = {each.seen for each in judged.outcomes if each.result == "skipped"}
    assert skipped <= {"no tenantless key was given: --tenantless-key"}


async def _judge(store: Embedded) -> Results:
    """The core and the feed, by a clock that the suite moves from now on: the log is old."""
    now = SystemClock().now()
    async with launched_on(store.url, "selfhosted", now=now) as target:
        asked = [each for each in all_cases() if each.level == "core" or each.rule == "R31"]
        return await conform(target, asked)


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


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".lock"])
@pytest.mark.parametrize("by_link", [False, True])
def test_a_backup_never_takes_a_name_that_the_store_needs(
    store: Embedded, tmp_path: Path, suffix: str, by_link: bool
) -> None:
    part = store.path.with_name(store.path.name + suffix)
    if by_link:
        (tmp_path / "linked").symlink_to(store.path.parent)
        part = tmp_path / "linked" / part.name

    refused = store.run("backup", "--force", str(part))

    assert refused.returncode == 2
    assert "a part of it" in refused.stderr
    assert not part.exists()


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


def test_who_signed_out_since_is_not_signed_in_again_by_a_restore(
    store: Embedded, tmp_path: Path
) -> None:
    key, file = create_key(store.url)["key"], tmp_path / "copy"
    with Serving(store.url, tmp_path) as serving, client(serving, key) as http:
        assert http.post("/v1/sessions").status_code == 201
    store.run("backup", str(file))
    assert store.rows("SELECT count(*) FROM sessions") == [(1,)]

    restored = store.run("restore", str(file), "--yes")

    assert restored.returncode == 0, restored.stderr
    assert store.rows("SELECT count(*) FROM sessions") == [(0,)]


@pytest.fixture
def linked(store: Embedded, tmp_path: Path) -> Embedded:
    """The same store by a link in another directory."""
    place = tmp_path / "links"
    place.mkdir()
    (place / "link.db").symlink_to(store.path)
    return Embedded(place / "link.db")


def test_a_store_behind_a_link_is_restored_where_it_is(
    store: Embedded, linked: Embedded, tmp_path: Path
) -> None:
    key, file = create_key(linked.url)["key"], tmp_path / "copy"
    linked.beat("before", key=key)
    linked.run("backup", str(file))
    linked.beat("after", key=key)

    restored = linked.run("restore", str(file), "--yes")

    assert restored.returncode == 0, restored.stderr
    assert linked.path.is_symlink()
    assert store.workers() == linked.workers() == {"before"}
    assert Embedded(store.kept()).workers() == {"before", "after"}
    assert [each.name for each in linked.path.parent.iterdir()] == ["link.db"]


def test_a_store_has_one_lock_by_whatever_name_it_is_served(
    store: Embedded, linked: Embedded, tmp_path: Path
) -> None:
    file = tmp_path / "copy"
    store.run("backup", str(file))

    with Serving(linked.url, tmp_path):
        refused = [each.run("restore", str(file), "--yes") for each in (store, linked)]
        second = store.run("serve", "--port", "0")

    assert [each.returncode for each in (*refused, second)] == [4, 4, 4]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("missing", ["neither", "lock", "store", "both"])
def test_what_root_restores_is_the_collectors_own(
    store: Embedded, tmp_path: Path, missing: str
) -> None:
    file, lock = tmp_path / "copy", store.path.with_name("collector.db.lock")
    store.run("backup", str(file))
    lock.touch()
    for each in (store.path.parent, store.path, lock):
        os.chown(each, 4242, 4343)
    if missing in ("lock", "both"):
        lock.unlink()
    if missing in ("store", "both"):
        store.path.unlink()

    restored = store.run("restore", str(file), "--yes")

    assert restored.returncode == 0, restored.stderr
    owners = {(each.stat().st_uid, each.stat().st_gid) for each in store.path.parent.iterdir()}
    assert owners == {(4242, 4343)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_lock_that_root_made_for_nothing_is_the_collectors_own(
    store: Embedded, tmp_path: Path
) -> None:
    file, lock = tmp_path / "copy", store.path.with_name("collector.db.lock")
    store.run("backup", str(file))
    for each in (store.path.parent, store.path):
        os.chown(each, 4242, 4343)

    unasked = store.run("restore", str(file))

    assert unasked.returncode == 1
    assert (lock.stat().st_uid, lock.stat().st_gid) == (4242, 4343)


def test_every_tenants_audit_says_that_it_was_restored(store: Embedded, tmp_path: Path) -> None:
    for tenant in ("acme", "blue"):
        create_key(store.url, tenant)
    copied = json.loads(store.run("backup", str(tmp_path / "copy"), "--json").stdout)

    restored = json.loads(store.run("restore", str(tmp_path / "copy"), "--yes", "--json").stdout)

    for tenant, held in zip(("acme", "blue"), copied["tenants"], strict=True):
        told = json.loads(store.run("audit", "--tenant", tenant, "--json").stdout)
        assert [act["action"] for act in told] == ["store.restored", "key.created"]
        assert (told[0]["actor"], told[0]["subject"]) == ("operator", restored["epoch"])
        assert told[0]["detail"] == {"cursor": held["cursor"]}
        assert told[0]["at"] >= told[1]["at"]


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
        # All of it at once, as by a power cut: else who writes beats tidies up.
        for pid in (*children(serving.pid), serving.pid):
            os.kill(pid, signal.SIGKILL)
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
        backup.restore(file, store.path, keep=None, now=at(0), tell=lambda *_: None)

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


def older(store: Embedded, file: Path, revision: str) -> Embedded:
    """What this store has, as a collector of that revision would have backed it up."""
    engine = _engine(file, begin="BEGIN", pool_size=1)
    with engine.begin() as conn:
        migrations.upgrade(conn, revision)
    engine.dispose()
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute("ATTACH ? AS newer", (str(store.path),))
        tables = conn.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if table == "alembic_version":
                continue
            columns = ", ".join(
                name for _, name, *_ in conn.execute(f"PRAGMA main.table_info({table})")
            )
            conn.execute(f"DELETE FROM main.{table}")
            conn.execute(f"INSERT INTO main.{table} SELECT {columns} FROM newer.{table}")
        conn.execute("PRAGMA journal_mode = DELETE")
    return Embedded(file)


REVISIONS = [each.name[:4] for each in migrations.directory().glob("versions/[0-9]*.py")]
OLDER = sorted(revision for revision in REVISIONS if revision < HEAD)


@pytest.mark.parametrize("revision", OLDER)
def test_an_older_backup_is_brought_to_this_versions_schema_with_all_that_it_holds(
    store: Embedded, tmp_path: Path, revision: str
) -> None:
    key = create_key(store.url, scopes=EVERYTHING)
    store.beat("before", key=key["key"])
    old = older(store, tmp_path / "old", revision)
    assert old.rows("SELECT version_num FROM alembic_version") == [(revision,)]
    events = old.rows("SELECT * FROM events")

    restored = store.run("restore", str(old.path), "--yes", "--json")

    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["revision"] == HEAD
    assert (store.workers(), store.rows("SELECT * FROM events")) == ({"before"}, events)
    with Serving(store.url, tmp_path) as serving, client(serving, key["key"]) as http:
        assert http.post(HEARTBEAT, json=body("after")).status_code == 202
        kept = http.get("/v1/keys").json()["keys"]
        acts = http.get("/v1/audit").json()["acts"]
    assert [(each["id"], each["expires_at"]) for each in kept] == [(key["id"], None)]
    # Before the second revision nobody kept an audit.
    told = ["key.created"] if revision >= "0002" else []
    assert [act["action"] for act in acts] == ["store.restored", *told]
    assert old.rows("SELECT version_num FROM alembic_version") == [(revision,)]


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
