"""The commands that ask a running collector: agents and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from threading import Thread

import httpx2
import pytest

from tests.factories import body
from tests.processes import Serving, run

AWKWARD = "a/b %?' 漢"


class Asked:
    """A collector on a fresh embedded store, with its first key, and one awkward worker."""

    def __init__(self, serving: Serving) -> None:
        assert serving.key is not None
        self._env = {"VOICEGW_COLLECTOR_URL": serving.url, "VOICEGW_API_KEY": serving.key}
        self._serving = serving

    def beat(self, agent_id: str, status: str, **fields: str) -> None:
        headers = {"Authorization": f"Bearer {self._env['VOICEGW_API_KEY']}"}
        url = f"{self._serving.url}/v1/agents/heartbeat"
        sent = httpx2.post(url, json=body(agent_id, status=status, **fields), headers=headers)
        assert sent.status_code == 202

    def run(self, *args: str) -> CompletedProcess[str]:
        return run(*args, env=self._env)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    with Serving(None, tmp_path) as serving:
        yield Asked(serving)


def test_a_worker_is_shown_whatever_it_is_called(asked: Asked) -> None:
    asked.beat(AWKWARD, "busy")

    shown = asked.run("agents", "show", AWKWARD)
    as_json = asked.run("agents", "show", AWKWARD, "--json")

    assert f"agent_id            {AWKWARD}\n" in shown.stdout
    assert json.loads(as_json.stdout)["status"] == "busy"


def test_showing_an_unknown_worker_fails_and_says_so(asked: Asked) -> None:
    shown = asked.run("agents", "show", "nobody")

    assert (shown.returncode, shown.stdout) == (1, "")
    assert "no worker with this agent_id" in shown.stderr


def test_the_log_is_shown_line_by_line(asked: Asked) -> None:
    for status in ("idle", "busy", "offline"):
        asked.beat(AWKWARD, status)

    shown = asked.run("events")
    newest = asked.run("events", "--last", "1", "--json")

    assert [line.split()[2] for line in shown.stdout.splitlines()] == ["online", "changed", "left"]
    assert json.loads(newest.stdout)["type"] == "worker.left"


def test_pruning_removes_who_is_offline_for_long_and_nobody_else(asked: Asked) -> None:
    asked.beat(AWKWARD, "offline")
    asked.beat("alive", "idle")

    too_soon = asked.run("agents", "prune", "--offline-for", "1h", "--yes")
    unasked = asked.run("agents", "prune", "--offline-for", "0s")
    pruned = asked.run("agents", "prune", "--offline-for", "0s", "--yes")

    assert "Nobody" in too_soon.stdout
    assert (unasked.returncode, pruned.returncode) == (1, 0)
    assert "Remove this one?" in unasked.stdout
    assert "--yes" in unasked.stderr
    assert "1 removed." in pruned.stdout
    roster = json.loads(asked.run("agents", "list", "--json").stdout)
    assert [worker["agent_id"] for worker in roster["workers"]] == ["alive"]


FILTERED = [
    ("agents", "remove", "--status", "offline", "--yes"),
    ("agents", "remove", "--unseen-for", "0s", "--yes"),
    ("agents", "list"),
    ("agents", "top"),
    ("events",),
]


@pytest.mark.parametrize("option", ["--name", "--project", "--region"])
@pytest.mark.parametrize("command", FILTERED, ids=" ".join)
def test_an_empty_filter_is_wrong_usage_and_never_means_everybody(
    command: tuple[str, ...], option: str
) -> None:
    refused = run(*command, option, "", env={"VOICEGW_API_KEY": "k"})

    assert (refused.returncode, refused.stdout) == (2, "")
    assert option in refused.stderr
    assert "is empty" in refused.stderr


@pytest.mark.parametrize("for_so_long", [("prune", "--offline-for"), ("remove", "--unseen-for")])
def test_an_empty_duration_is_wrong_usage(for_so_long: tuple[str, str]) -> None:
    refused = run("agents", *for_so_long, "", "--yes", env={"VOICEGW_API_KEY": "k"})

    assert (refused.returncode, refused.stdout) == (2, "")


def test_every_filter_narrows_whom_a_removal_means(asked: Asked) -> None:
    asked.beat("mine", "offline", project="mine")
    asked.beat("theirs", "offline", project="theirs")
    asked.beat("alive", "idle", project="mine")

    removal = ("remove", "--status", "offline", "--project", "mine", "--unseen-for", "0s")
    removed = asked.run("agents", *removal, "--yes")

    assert "1 removed." in removed.stdout
    roster = json.loads(asked.run("agents", "list", "--json").stdout)
    assert {worker["agent_id"] for worker in roster["workers"]} == {"theirs", "alive"}


def test_no_time_at_all_is_a_filter_too(asked: Asked) -> None:
    asked.beat("anybody", "idle")

    previewed = asked.run("agents", "remove", "--unseen-for", "0s", "--dry-run")

    assert "1 would be removed." in previewed.stdout


def test_no_lines_asked_for_is_not_nothing_happened(asked: Asked) -> None:
    asked.beat("w", "idle")

    shown = asked.run("events", "--last", "0")

    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


def test_removal_tells_programs_what_it_did(asked: Asked) -> None:
    for name in ("a", "b"):
        asked.beat(name, "idle")

    preview = asked.run("agents", "remove", "--status", "idle", "--dry-run", "--json")
    removed = asked.run("agents", "remove", "--status", "idle", "--yes", "--json")

    assert (json.loads(preview.stdout)["matched"], json.loads(preview.stdout)["removed"]) == (2, 0)
    assert json.loads(removed.stdout)["removed"] == 2


def test_an_address_with_a_path_is_named_with_its_variable(asked: Asked) -> None:
    asked._env["VOICEGW_COLLECTOR_URL"] += "/foo"

    refused = asked.run("agents", "list")

    assert refused.returncode == 1
    assert "/foo/v1/agents is no route of a collector" in refused.stderr
    assert "VOICEGW_COLLECTOR_URL" in refused.stderr


def test_where_there_is_no_store_a_command_on_it_exits_3(tmp_path: Path) -> None:
    for command in (["keys", "list"], ["tenants", "list"], ["audit"]):
        failed = run(*command, env={}, cwd=tmp_path)

        assert failed.returncode == 3
        assert "there is no store at" in failed.stderr


def test_a_list_says_whether_nobody_is_there_or_nobody_matches(asked: Asked) -> None:
    assert asked.run("agents", "list").stdout == "No workers yet.\n"

    assert asked.run("agents", "list", "--status", "busy").stdout == "No workers match.\n"


@pytest.mark.parametrize("key", ["vk_SECRET\nx", "vk_ö", "two words"])
def test_what_is_no_key_is_refused_without_being_shown(key: str) -> None:
    refused = run("agents", "list", env={"VOICEGW_API_KEY": key})

    assert refused.returncode == 4
    assert key.split("\n")[0] not in refused.stderr


@pytest.mark.parametrize(
    "url", ["http://[::1", "ftp://h", "nonsense", "http://h:port", "http://user:hunter2@h"]
)
def test_what_is_no_collectors_url_is_wrong_usage(url: str) -> None:
    refused = run("agents", "list", env={"VOICEGW_API_KEY": "k", "VOICEGW_COLLECTOR_URL": url})

    assert refused.returncode == 2
    assert "VOICEGW_COLLECTOR_URL" in refused.stderr
    assert "hunter2" not in refused.stderr


HOSTILE = "\x1b[2J\x9b1m\r\u202e\u2028\u2029\u2066gone"


class Hostile(BaseHTTPRequestHandler):
    """Answers with what would play with a terminal."""

    def do_GET(self) -> None:
        is_log = self.path.startswith("/v1/events")
        worker = {"agent_id": HOSTILE, "status": HOSTILE}
        event = {"at": 0, "type": HOSTILE, "reason": HOSTILE, "worker": worker}
        told = {"events": [event], "cursor": "c"} if is_log else {"detail": HOSTILE + "\nnext"}
        self.send_response(200 if is_log else 422)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, *_: object) -> None:
        """Not to the test's own terminal."""


@pytest.fixture
def hostile() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "command",
    [
        ("agents", "list"),
        ("agents", "show", "w"),
        ("agents", "top", "--once"),
        ("events",),
        ("events", "--json"),
    ],
)
def test_what_a_server_says_does_nothing_to_the_terminal(
    hostile: str, command: tuple[str, ...]
) -> None:
    said = run(*command, env={"VOICEGW_API_KEY": "k", "VOICEGW_COLLECTOR_URL": hostile})

    (line,) = (said.stdout + said.stderr).splitlines()
    assert "[2J" in line
    assert "gone" in line
    assert not any(each in line for each in "\x1b\x9b\r\u202e\u2028\u2029\u2066")


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("COLLECTOR_STORE_URL", "postgresql://u@h:nine/d"),
        ("COLLECTOR_STORE_URL", "postgresql://u@h:99999/d"),
        ("COLLECTOR_DIRECT_URL", "nonsense"),
    ],
)
def test_what_is_no_stores_url_is_wrong_usage(variable: str, url: str) -> None:
    given = {"COLLECTOR_STORE_URL": "postgresql://u@h/d", variable: url}

    refused = run("keys", "list", env=given)

    assert refused.returncode == 2
    assert variable in refused.stderr
