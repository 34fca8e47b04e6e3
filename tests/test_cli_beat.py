"""Heartbeats out of a shell."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.processes import COMMAND, DEADLINE_SECONDS, Serving, create_key, environment, run
from tests.processes import wait_until as wait

KEY = "vk_" + "A" * 32


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with Serving(None, tmp_path) as started:
        yield started


def access(serving: Serving, **more: str) -> dict[str, str]:
    assert serving.key is not None
    return {"VOICEGW_COLLECTOR_URL": serving.url, "VOICEGW_API_KEY": serving.key, **more}


def roster(serving: Serving) -> dict[str, dict[str, Any]]:
    listed = run("agents", "list", "--json", env=access(serving))
    return {worker["agent_id"]: worker for worker in json.loads(listed.stdout)["workers"]}


@contextmanager
def beating(*args: str, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [COMMAND, "beat", *args],
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_one_beat_says_all_that_it_was_told(serving: Serving) -> None:
    options = ("--name", "reception", "--status", "busy", "--sessions", "2")
    more = ("--project", "lobby", "--region", "iad", "--version", "1.2")

    sent = run("beat", "w-1", *options, *more, env=access(serving))

    assert (sent.returncode, sent.stdout) == (0, "w-1 is busy.\n")
    worker = roster(serving)["w-1"]
    told = ("agent_name", "status", "active_sessions", "project", "region", "version", "host")
    assert [worker[name] for name in told] == [
        *("reception", "busy", 2, "lobby", "iad", "1.2", socket.gethostname())
    ]


def test_the_agent_id_is_the_variables_or_else_the_hosts_name(serving: Serving) -> None:
    named = run("beat", "--name", "n", env=access(serving, VOICEGW_AGENT_ID="from-variable"))
    unnamed = run("beat", "--name", "n", env=access(serving))

    assert (named.returncode, unnamed.returncode) == (0, 0)
    assert set(roster(serving)) == {"from-variable", socket.gethostname()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_goes_on_leaves_when_it_is_ended(number: signal.Signals, serving: Serving) -> None:
    with beating("w-1", "--name", "n", "--every", "1s", env=access(serving)) as process:
        wait(lambda: "w-1" in roster(serving))
        first = roster(serving)["w-1"]
        wait(lambda: roster(serving)["w-1"]["last_seen"] > first["last_seen"] + 1)
        process.send_signal(number)
        said, errors = process.communicate(timeout=DEADLINE_SECONDS)

    assert (process.returncode, errors) == (0, "")
    assert said == "w-1 is idle, every 1 s; Ctrl-C ends it.\nw-1 has left.\n"
    assert first["status"] == "idle"
    assert roster(serving)["w-1"]["reason"] == "left"


class Moody(BaseHTTPRequestHandler):
    """Answers each beat with the next of its statuses, then takes them all."""

    statuses: ClassVar[list[int]] = []
    told: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["status"])
        answer = b'{"detail": "The store does not answer; try again.", "errors": []}'
        self.send_response(self.statuses.pop(0) if self.statuses else 202)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing: the test's own output is not its place."""


@contextmanager
def moody(*statuses: int) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The environment that leads to such a collector, and the statuses that it was told."""
    told: list[str] = []
    kind = type("Statuses", (Moody,), {"statuses": list(statuses), "told": told})
    with HTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        yield {"VOICEGW_COLLECTOR_URL": url, "VOICEGW_API_KEY": KEY}, told
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("statuses", [(202, 503, 502), (503, 503), (429, 500, 202)])
def test_a_collector_that_is_away_is_said_once_and_tried_again(statuses: tuple[int, ...]) -> None:
    with (
        moody(*statuses) as (env, told),
        beating("w-1", "--name", "n", "--every", "1s", env=env) as process,
    ):
        wait(lambda: len(told) >= len(statuses) + 2)
        process.terminate()
        said, errors = process.communicate(timeout=DEADLINE_SECONDS)

    assert process.returncode == 0
    assert errors.count("trying again\n") == 1
    assert errors.count("The collector is back.") == 1
    assert said.count("w-1 is idle, every 1 s") == 1
    assert told[-1] == "offline"


def test_one_that_never_came_says_why_and_does_not_leave() -> None:
    with (
        moody(*[503] * 99) as (env, told),
        beating("w-1", "--name", "n", "--every", "1s", env=env) as process,
    ):
        wait(lambda: len(told) >= 2)
        process.terminate()
        said, _ = process.communicate(timeout=DEADLINE_SECONDS)

    assert (process.returncode, said) == (3, "")
    assert "offline" not in told


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 1), (422, 2)])
def test_what_trying_again_would_not_mend_ends_it(status: int, code: int) -> None:
    with moody(202, status) as (env, told):
        ended = run("beat", "w-1", "--name", "n", "--every", "1s", env=env)

    assert (ended.returncode, len(told)) == (code, 2)
    assert "trying again" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--every", "46s"], "from 1s to 45s"),
        (["--every", "often"], "such as 15s"),
        (["--status", "asleep"], "'asleep' is not one of"),
        (["--sessions", "-1"], "0<=x"),
    ],
)
def test_what_is_no_beat_is_wrong_usage(options: list[str], said: str) -> None:
    refused = run("beat", "w-1", "--name", "n", *options, env={"VOICEGW_API_KEY": KEY})

    assert refused.returncode == 2
    assert said in refused.stderr


def test_an_empty_agent_id_is_wrong_usage_and_not_the_hosts_name(serving: Serving) -> None:
    refused = run("beat", "", "--name", "n", env=access(serving))

    assert refused.returncode == 2
    assert "AGENT_ID is empty" in refused.stderr
    assert roster(serving) == {}


@pytest.mark.parametrize(("agent_id", "name"), [("w-1", ""), ("w" * 999, "n")])
def test_what_the_collector_finds_wrong_is_wrong_usage_too(
    agent_id: str, name: str, serving: Serving
) -> None:
    refused = run("beat", agent_id, "--name", name, env=access(serving))

    assert refused.returncode == 2
    assert "agent_" in refused.stderr


def test_a_beat_past_the_quota_is_refused() -> None:
    with moody(429) as (env, _):
        refused = run("beat", "--name", "n", env=env)

    assert refused.returncode == 4


def test_a_beat_without_a_key_names_the_scope_it_needs() -> None:
    refused = run("beat", "--name", "n", env={})

    assert refused.returncode == 4
    assert "--scopes ingest" in refused.stderr


def test_a_key_that_may_only_read_is_refused(serving: Serving, tmp_path: Path) -> None:
    key = create_key(f"sqlite:///{tmp_path}/.data/collector.db", scopes="read")["key"]

    refused = run("beat", "--name", "n", env=access(serving, VOICEGW_API_KEY=key))

    assert refused.returncode == 4
    assert "lacks the scope: ingest" in refused.stderr
