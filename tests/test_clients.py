"""The programs of docs/clients.md, as they stand there, against a real collector."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.processes import Serving, create_key, environment, run, wait_until

PAGE = (Path(__file__).parents[1] / "docs" / "clients.md").read_text()
PROGRAMS = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
WORKERS = {"beat.sh": ["sh"], "worker.mjs": ["node"], "worker.go": ["go"]}


class Running:
    """A collector, and programs of the page that know where it is."""

    def __init__(self, serving: Serving, key: str, directory: Path) -> None:
        self.serving = serving
        self._key = key
        self._directory = directory

    def start(self, name: str, *command: str, key: str | None = None) -> subprocess.Popen[str]:
        # A language that is not here is no fault of the machine's: also a strict run goes on.
        if shutil.which(command[0]) is None:
            pytest.skip(f"no {command[0]} on this machine")
        file = self._directory / name
        file.write_text(PROGRAMS[name])
        if file.suffix == ".go":
            # Not `go run`: it hands no signal on.
            command, file = (), self._compiled(file)
        variables = {
            "HOME": str(self._directory),
            "VOICEGW_COLLECTOR_URL": self.serving.url,
            "VOICEGW_API_KEY": key or self._key,
            "VOICEGW_AGENT_ID": "client-1",
        }
        return subprocess.Popen(
            [*command, str(file)],
            env=environment(variables),
            cwd=self._directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _compiled(self, source: Path) -> Path:
        program = source.with_suffix("")
        subprocess.run(
            ["go", "build", "-o", program, source],
            env=environment({"HOME": str(self._directory)}),
            cwd=self._directory,
            check=True,
        )
        return program

    def workers(self) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self._key}"}
        answer = httpx2.get(f"{self.serving.url}/v1/agents", headers=headers, trust_env=False)
        workers: list[dict[str, Any]] = answer.raise_for_status().json()["workers"]
        return workers

    def reason(self) -> str:
        return next((str(worker["reason"]) for worker in self.workers()), "unknown")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    url = f"sqlite:///{tmp_path / 'collector.db'}"
    key = create_key(url)["key"]
    with Serving(url, tmp_path) as serving:
        yield Running(serving, key, tmp_path)


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_beats_and_leaves_when_it_is_ended(running: Running, name: str) -> None:
    with running.start(name, *WORKERS[name]) as program:
        try:
            wait_until(lambda: running.reason() == "alive")
            (worker,) = running.workers()
            program.send_signal(signal.SIGTERM)
            wait_until(lambda: running.reason() == "left")
            said, _ = program.communicate(timeout=30)
        finally:
            program.kill()

    assert said == ""
    assert (worker["agent_id"], worker["status"]) == ("client-1", "idle")
    assert worker["started_at"] is not None


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_that_is_refused_says_so_and_stops(running: Running, name: str) -> None:
    with running.start(name, *WORKERS[name], key="vk_" + "A" * 32) as program:
        _, said = program.communicate(timeout=30)

    assert program.returncode == 1
    assert "refused" in said


def test_the_curl_line_beats(running: Running) -> None:
    with running.start("curl", "sh") as program:
        said, errors = program.communicate(timeout=30)

    assert program.returncode == 0, errors
    assert '"status":"accepted"' in said
    assert running.reason() == "alive"


def test_a_follower_tells_every_change(running: Running) -> None:
    with running.start("follow.mjs", "node") as follower:
        try:
            wait_until(lambda: "collector_subscribers 1.0" in _metrics(running))
            with running.start("curl", "sh") as beat:
                beat.wait(30)
            assert follower.stdout is not None
            told = follower.stdout.readline()
        finally:
            follower.kill()

    assert told == "worker.online client-1 idle 0\n"


def _metrics(running: Running) -> str:
    return httpx2.get(f"{running.serving.url}/metrics", trust_env=False).text


def test_every_program_of_the_page_is_tried() -> None:
    assert set(PROGRAMS) == {*WORKERS, "curl", "follow.mjs", "sidecar.yaml"}


def test_the_sidecar_runs_a_command_that_there_is() -> None:
    found = re.search(r'args: \["(\w+)", (.*)\]', PROGRAMS["sidecar.yaml"])
    assert found is not None
    said = run(found[1], "--help", env={}).stdout

    for option in re.findall(r"--\w+", found[2]):
        assert option in said
