"""What the doctor finds, each on something that really is so."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, ClassVar, NamedTuple

import pytest

from collector import __version__
from collector.cli.checks import MIB, Finding, check_disk, check_store, clock_finding, settings_of
from collector.settings import Settings
from collector.store.open import store_for
from collector.values import NO_GAP, SECOND
from conformance.launcher import launched
from tests.conftest import BACKENDS
from tests.databases import administer
from tests.factories import beat
from tests.processes import COMMAND, Serving, create_key, environment, run
from tests.strict import skip

UNKNOWN_KEY = "vk_" + "A" * 32

pytestmark = pytest.mark.usefixtures("anyio_backend")
on_a_shared_store = pytest.mark.parametrize(
    "backend", [name for name in BACKENDS if name != "selfhosted"], indirect=True
)


class Patient:
    """A collector on the embedded store of a directory, and the doctor there."""

    def __init__(self, serving: Serving, place: Path) -> None:
        self.serving, self.place = serving, place
        assert serving.key is not None
        self.key = serving.key
        self.store_url = f"sqlite:///{place}/.data/collector.db"

    def doctor(self, *args: str, **env: str) -> CompletedProcess[str]:
        known = {"VOICEGW_COLLECTOR_URL": self.serving.url, "VOICEGW_API_KEY": self.key}
        return run("doctor", *args, env={**known, **env}, cwd=self.place)

    def workers(self) -> list[dict[str, Any]]:
        env = {"VOICEGW_COLLECTOR_URL": self.serving.url, "VOICEGW_API_KEY": self.key}
        roster = json.loads(run("agents", "list", "--json", env=env).stdout)
        found: list[dict[str, Any]] = roster["workers"]
        return found


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Patient]:
    with Serving(None, tmp_path) as serving:
        yield Patient(serving, tmp_path)


def findings(ran: CompletedProcess[str]) -> dict[str, dict[str, str]]:
    assert ran.stdout, ran.stderr
    return {each["check"]: each for each in json.loads(ran.stdout)["findings"]}


def test_where_all_is_well_nothing_failed_and_nobody_is_alive_by_it(patient: Patient) -> None:
    looked = patient.doctor("--json")

    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert {each["result"] for each in findings(looked).values()} <= {"ok", "warning"}
    assert list(findings(looked)) == [
        *("settings", "store", "migrations", "stamps", "disk"),
        *("collector", "readiness", "beat", "collector clock"),
    ]
    (worker,) = patient.workers()
    assert (worker["agent_id"], worker["reason"]) == ("collector-doctor", "left")


def test_people_get_a_line_for_each_finding(patient: Patient) -> None:
    looked = patient.doctor(COLLECTOR_PROT="1")

    assert looked.returncode == 0
    assert "ok       store            .data/collector.db answers\n" in looked.stdout
    assert "warning  settings         COLLECTOR_PROT is no setting" in looked.stdout
    assert "fix: did you mean COLLECTOR_PORT?\n" in looked.stdout


def test_stamps_ahead_of_now_are_told(store_url: str) -> None:
    settings = Settings(store_url=store_url)

    def stamps() -> Finding:
        (found,) = [each for each in check_store(settings) if each.check == "stamps"]
        return found

    well = stamps()
    asyncio.run(beat_at(settings, time.time_ns() // 1000 + 7200 * SECOND))
    ill = stamps()

    assert (well.result, ill.result) == ("ok", "failed")
    assert re.match(r"1 workers, 0 gaps and 0 collectors are stamped up to 7\d{3}", ill.says)


async def beat_at(settings: Settings, stamp: int) -> None:
    store = store_for(settings)
    await store.open()
    await store.commit([beat(last_seen=stamp)], now=stamp, gone=NO_GAP)
    await store.close()


@pytest.mark.parametrize("scopes", ["ingest", "ingest,read,admin"])
def test_a_second_look_leaves_no_more_than_the_first(patient: Patient, scopes: str) -> None:
    key = create_key(patient.store_url, "default", scopes)["key"]

    def traces() -> list[str]:
        env = {"VOICEGW_COLLECTOR_URL": patient.serving.url, "VOICEGW_API_KEY": patient.key}
        acts = run("audit", env={"COLLECTOR_STORE_URL": patient.store_url}).stdout
        return [run("events", env=env).stdout, acts, str(len(patient.workers()))]

    looked = patient.doctor("--json", VOICEGW_API_KEY=key)
    first = traces()
    patient.doctor("--json", VOICEGW_API_KEY=key)

    assert looked.returncode == 0
    assert traces() == first
    assert first[2] == "1"


def test_every_setting_has_its_source_and_none_a_secret(patient: Patient) -> None:
    password = "postgresql://user:p%40ss@127.0.0.1:1/db?password=pass"

    looked = patient.doctor(
        "--json",
        COLLECTOR_DIRECT_URL=password,
        COLLECTOR_POOL_SIZE="7",
        COLLECTOR_METRICS_KEY="nobody-else-knows",
    )

    told = {each["name"]: each for each in json.loads(looked.stdout)["settings"]}
    assert told["COLLECTOR_POOL_SIZE"] == {
        "name": "COLLECTOR_POOL_SIZE",
        "value": "7",
        "source": "environment",
    }
    assert told["COLLECTOR_PORT"]["source"] == "default"
    assert told["COLLECTOR_MAX_KEYS"]["value"] == "1000"
    assert told["COLLECTOR_DIRECT_URL"]["value"] == "postgresql://…@127.0.0.1:1/db"
    assert told["VOICEGW_API_KEY"]["value"] == f"{patient.key[:11]}…"
    assert patient.key not in looked.stdout
    assert "p%40ss" not in looked.stdout
    assert "nobody-else-knows" not in looked.stdout


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:hunter2@h:5432/db?sslmode=require", "postgresql://…@h:5432/db"),
        ("postgresql://user:hunt?er2@h/db", "postgresql://…@h/db"),
        ("postgresql://user:hunt/er2@h/db", "postgresql://…@h/db"),
        ("postgresql://user:hunt#er2@[::1]:5432/db", "postgresql://…@[::1]:5432/db"),
        ("postgresql://user@h/db", "postgresql://…@h/db"),
        ("postgresql://h/db?password=hunter2", "postgresql://h/db"),
        ("postgresql:///db?host=/run&password=hunter2", "postgresql:///db"),
        ("sqlite:////var/lib/a@b/collector.db", "sqlite:////var/lib/a@b/collector.db"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("postgresql:user:hunter2@h/db", "(set)"),
        ("user:hunter2@h/db", "(set)"),
        ("postgresql://user:hun@er2@h/db", "(set)"),
        ("postgresql://h:5432/db?password=hun@er2", "(set)"),
        ("postgresql://h/db?password=hun@er2", "(set)"),
        ("postgresql://user/x:hunter2@h/db", "postgresql://…@h/db"),
        ("//user:hunter2@h", "(set)"),
        ("hunter2", "(set)"),
    ],
)
def test_a_url_is_shown_without_what_could_be_its_password(url: str, shown: str) -> None:
    told = {each.name: each.value for each in settings_of({"COLLECTOR_STORE_URL": url})}

    assert told["COLLECTOR_STORE_URL"] == shown


def test_the_rest_of_a_password_is_not_taken_for_the_host(patient: Patient) -> None:
    looked = patient.doctor(COLLECTOR_STORE_URL="postgresql://user:hun@ter2@h/db")

    assert looked.returncode == 1
    assert "in a password it is %40" in looked.stdout
    assert "ter2" not in looked.stdout + looked.stderr


def test_what_is_not_set_is_null_for_programs_and_a_dash_for_people(patient: Patient) -> None:
    told = {
        each["name"]: each["value"]
        for each in json.loads(patient.doctor("--json").stdout)["settings"]
    }

    assert told["COLLECTOR_DIRECT_URL"] is None
    assert re.search(r"COLLECTOR_DIRECT_URL +– +default\n", patient.doctor().stdout)


def test_a_wrong_setting_fails_and_the_rest_is_looked_at(patient: Patient) -> None:
    looked = patient.doctor("--json", COLLECTOR_PORT="eighty")

    assert looked.returncode == 1
    assert "COLLECTOR_PORT: must be" in findings(looked)["settings"]["says"]
    assert findings(looked)["beat"]["result"] == "ok"


# The store


def closed_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


def test_a_store_that_is_down_is_unreachable(patient: Patient) -> None:
    down = f"postgresql://nobody@127.0.0.1:{closed_port()}/none"

    looked = patient.doctor("--json", COLLECTOR_STORE_URL=down)

    assert looked.returncode == 3
    assert findings(looked)["store"]["result"] == "failed"
    assert findings(looked)["store"]["fix"].startswith("start PostgreSQL")
    assert findings(looked)["beat"]["result"] == "ok"


@pytest.mark.parametrize("content", [b"this is no db\n", b"SQLite format 3\0" + b"x" * 4096])
def test_a_file_that_is_no_store_wants_a_backup_or_another_path(
    patient: Patient, tmp_path: Path, content: bytes
) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(content)

    looked = patient.doctor("--json", COLLECTOR_STORE_URL=f"sqlite:///{broken}")

    assert looked.returncode == 1
    assert findings(looked)["store"]["result"] == "failed"
    assert "collector restore FILE" in findings(looked)["store"]["fix"]
    assert "COLLECTOR_STORE_URL" in findings(looked)["store"]["fix"]


def test_nothing_there_at_all_is_unreachable(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}"

    looked = run(
        *("doctor", "--json"),
        env={"VOICEGW_COLLECTOR_URL": url, "COLLECTOR_STORE_URL": "sqlite:///none.db"},
        cwd=tmp_path,
    )

    assert looked.returncode == 3
    failed = {name for name, each in findings(looked).items() if each["result"] == "failed"}
    assert failed == {"store", "collector"}
    assert "serve" in findings(looked)["collector"]["fix"]
    assert list(tmp_path.iterdir()) == []


def test_a_machine_of_workers_needs_no_store(patient: Patient, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    patient.place = elsewhere

    looked = patient.doctor("--json")

    assert looked.returncode == 0
    assert findings(looked)["store"]["result"] == "warning"


@on_a_shared_store
def test_a_shared_store_that_is_behind_fails(patient: Patient, empty_store_url: str) -> None:
    looked = patient.doctor("--json", COLLECTOR_STORE_URL=empty_store_url)

    assert looked.returncode == 1
    assert findings(looked)["migrations"]["result"] == "failed"
    assert findings(looked)["migrations"]["fix"] == "run: collector migrate"


def test_an_embedded_store_that_is_behind_is_a_warning(patient: Patient, tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()

    looked = patient.doctor("--json", COLLECTOR_STORE_URL=f"sqlite:///{empty}")

    assert looked.returncode == 0
    assert findings(looked)["migrations"]["result"] == "warning"
    assert "this version needs revision" in findings(looked)["migrations"]["says"]


def test_a_store_that_is_ahead_is_a_warning(patient: Patient, store_file: Path) -> None:
    with closing(sqlite3.connect(store_file)) as conn, conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")

    looked = patient.doctor("--json", COLLECTOR_STORE_URL=f"sqlite:///{store_file}")

    assert findings(looked)["migrations"]["result"] == "warning"
    assert "update this collector" in findings(looked)["migrations"]["fix"]


@pytest.fixture
def store_file(tmp_path: Path, migrated_file: Path) -> Path:
    return Path(shutil.copy(migrated_file, tmp_path / "ahead.db"))


# Clocks


async def test_a_collector_whose_clock_is_elsewhere_fails(tmp_path: Path) -> None:
    async with launched("selfhosted") as target:
        env = {"VOICEGW_COLLECTOR_URL": target.url, "VOICEGW_API_KEY": target.keys.a}
        looked = await asyncio.to_thread(run, "doctor", "--json", env=env, cwd=tmp_path)

    assert looked.returncode == 1
    assert findings(looked)["collector clock"]["result"] == "failed"
    assert "NTP" in findings(looked)["collector clock"]["fix"]


@on_a_shared_store
@pytest.mark.parametrize(("seconds", "result"), [(0, "ok"), (3, "warning"), (-7, "failed")])
def test_this_machines_clock_is_held_against_the_stores(
    store_url: str, seconds: int, result: str
) -> None:
    found = check_store(
        Settings(store_url=store_url), now=lambda: time.time_ns() // 1000 + seconds * SECOND
    )

    (clock,) = [each for each in found if each.check == "store clock"]
    assert clock.result == result


def test_a_clock_says_which_way_it_is_off() -> None:
    assert "6.5 s ahead of the store's" in clock_finding("store", 6_500_000).says
    assert "6.5 s behind the store's" in clock_finding("store", -6_500_000).says


# The disk


class Room(NamedTuple):
    free: int
    total: int


@pytest.mark.parametrize(
    ("free", "total", "result"),
    [
        (64 * MIB - 1, 100 * MIB, "failed"),
        (64 * MIB, 100 * MIB, "warning"),
        (1024 * MIB - 1, 2048 * MIB, "warning"),
        (1024 * MIB, 2048 * MIB, "ok"),
        (2048 * MIB, 40_000 * MIB, "warning"),
    ],
)
def test_a_disk_is_judged_by_what_is_free(
    free: int, total: int, result: str, tmp_path: Path
) -> None:
    settings = Settings(store_url=f"sqlite:///{tmp_path}/none/yet.db")

    (found,) = check_disk(settings, usage=lambda _: Room(free, total))

    assert found.result == result
    assert (found.fix is None) == (result == "ok")


def test_a_disk_that_is_full_fails(tmp_path: Path) -> None:
    """On a real one of 16 MiB, which nobody else sees."""
    if shutil.which("unshare") is None:
        skip("unshare is not installed")
    place = shlex.quote(str(tmp_path))
    command = shlex.quote(str(COMMAND))
    script = f"""
        mount -t tmpfs -o size=16m tmpfs {place} || exit 99
        cd {place} && {command} migrate >&2 && {command} doctor --json"""
    isolated = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]

    looked = subprocess.run(isolated, env=environment({}), capture_output=True, text=True)

    if looked.returncode == 99 or looked.stderr.startswith("unshare: "):
        skip(f"no file system can be mounted here: {looked.stderr.strip()}")
    assert looked.returncode == 1
    assert findings(looked)["disk"]["result"] == "failed"
    assert findings(looked)["disk"]["fix"].startswith("free some space")


# The collector and the key


def test_a_key_that_opens_nothing_fails(patient: Patient) -> None:
    looked = patient.doctor("--json", VOICEGW_API_KEY=UNKNOWN_KEY)

    assert looked.returncode == 1
    assert findings(looked)["beat"]["result"] == "failed"
    assert "keys create" in findings(looked)["beat"]["fix"]
    assert findings(looked)["beat"]["says"].endswith("In .data/collector.db it is unknown.")


@pytest.mark.parametrize("state", ["revoked", "expired", "mistyped"])
def test_the_store_at_hand_says_what_is_wrong_with_a_key(patient: Patient, state: str) -> None:
    made = create_key(patient.store_url, "default")
    key = made["key"][:-1] + "A" if state == "mistyped" else made["key"]
    if state == "revoked":
        run("keys", "revoke", made["id"], env={"COLLECTOR_STORE_URL": patient.store_url})
    if state == "expired":
        with closing(sqlite3.connect(patient.place / ".data/collector.db")) as conn, conn:
            conn.execute("UPDATE keys SET expires_at = 1 WHERE id = ?", (made["id"],))

    looked = patient.doctor("--json", VOICEGW_API_KEY=key)

    assert (
        f"it is {'active, so it is mistyped' if state == 'mistyped' else state}"
        in (findings(looked)["beat"]["says"])
    )


def test_a_key_that_may_only_read_fails(patient: Patient) -> None:
    key = create_key(patient.store_url, "default", "read")["key"]

    looked = patient.doctor("--json", VOICEGW_API_KEY=key)

    assert looked.returncode == 1
    assert "lacks the scope: ingest" in findings(looked)["beat"]["says"]
    assert patient.workers() == []


def test_without_a_key_no_beat_is_tried(patient: Patient) -> None:
    looked = patient.doctor("--json", VOICEGW_API_KEY="")

    assert looked.returncode == 0
    assert findings(looked)["beat"]["result"] == "warning"


@on_a_shared_store
async def test_a_collector_that_is_not_ready_fails(store_url: str, tmp_path: Path) -> None:
    key = create_key(store_url)["key"]
    with Serving(store_url, tmp_path) as serving:
        behind = "UPDATE alembic_version SET version_num = '0000'"
        await administer(store_url, behind)
        env = {"VOICEGW_COLLECTOR_URL": serving.url, "VOICEGW_API_KEY": key}
        looked = await asyncio.to_thread(run, "doctor", "--json", env=env, cwd=tmp_path)

    assert looked.returncode == 1
    assert "migrations: the store is at revision 0000" in findings(looked)["readiness"]["says"]
    assert findings(looked)["readiness"]["fix"].endswith("run: collector migrate")


@pytest.mark.parametrize(
    ("unwell", "fix", "code"),
    [
        (["clock"], "on the collector's machine", 1),
        (["commits"], "disk is full", 1),
        (["store"], "start the collector's store", 3),
        (["store", "clock"], "on the collector's machine", 1),
    ],
)
def test_each_thing_that_makes_it_not_ready_has_its_own_advice(
    unwell: list[str], fix: str, code: int, tmp_path: Path
) -> None:
    with unready(unwell) as url:
        env = {"VOICEGW_COLLECTOR_URL": url, "VOICEGW_API_KEY": UNKNOWN_KEY}
        looked = run("doctor", "--json", env=env, cwd=tmp_path)

    assert fix in findings(looked)["readiness"]["fix"]
    assert looked.returncode == code


class Unready(BaseHTTPRequestHandler):
    """A collector that is not ready, and whose store takes nothing."""

    unwell: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        about = {"implementation": "worker-presence", "version": __version__, "status": "ok"}
        errors = [{"field": name, "message": "is unwell"} for name in self.unwell]
        is_asked = self.path == "/readyz"
        self._answer(503 if is_asked else 200, {"detail": "x", "errors": errors} | about)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(503, {"detail": "The store does not answer; try again.", "errors": []})

    def _answer(self, status: int, told: dict[str, Any]) -> None:
        content = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: the test's own output is not its place."""


@contextmanager
def unready(unwell: list[str]) -> Iterator[str]:
    kind = type("Unwell", (Unready,), {"unwell": unwell})
    with HTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_answers_but_is_no_collector_fails(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"PATH": os.environ["PATH"]},
    ) as other:
        assert other.stdout is not None
        port = other.stdout.readline().split("port ")[1].split()[0]
        env = {"VOICEGW_COLLECTOR_URL": f"http://127.0.0.1:{port}"}
        looked = run("doctor", "--json", env=env, cwd=tmp_path)
        other.kill()

    assert looked.returncode == 1
    assert "is no collector" in findings(looked)["collector"]["says"]
