"""The command line as people meet it: real processes, their words and their exit codes."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shlex
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import click
import httpx2
import pytest
from click.testing import CliRunner

from collector.cli import collector
from tests.conftest import BACKENDS
from tests.factories import body
from tests.processes import DEADLINE_SECONDS, Serving, create_key, environment, run, wait_until
from tests.strict import skip

HEARTBEAT = "/v1/agents/heartbeat"
UNKNOWN_KEY = "vk_" + "A" * 32
HOSTILE_ID = "a/b%2F?c d\"e'f\\ü漢"

# Tests that are not coroutines have asynchronous fixtures too.
pytestmark = pytest.mark.usefixtures("anyio_backend")
on_a_shared_store = pytest.mark.parametrize(
    "backend", [name for name in BACKENDS if name != "selfhosted"], indirect=True
)


@pytest.fixture
def embedded_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/embedded.db"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Held, so that nobody else comes to listen there, and not listened on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def bash(script: str) -> subprocess.CompletedProcess[str]:
    for program in ("bash", "curl"):
        if shutil.which(program) is None:
            skip(f"{program} is not installed")
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(
        command, env=environment({}), capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )


def client(serving: Serving, key: str | None) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.Client(base_url=serving.url, headers=headers, trust_env=False)


def async_client(serving: Serving, key: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(
        base_url=serving.url, headers=headers, timeout=DEADLINE_SECONDS, trust_env=False
    )


def stored_ids(store_url: str, cwd: Path, key: str) -> set[str]:
    """Whom a collector that is started afterwards has in its roster."""
    with Serving(store_url, cwd) as serving, client(serving, key) as http:
        return {worker["agent_id"] for worker in http.get("/v1/agents").json()["workers"]}


def list_agents(url: str, key: str | None, *options: str) -> subprocess.CompletedProcess[str]:
    given = {} if key is None else {"VOICEGW_API_KEY": key}
    return run("agents", "list", *options, env={"VOICEGW_COLLECTOR_URL": url, **given})


def test_the_commands_of_the_first_welcome_work_as_they_stand(tmp_path: Path) -> None:
    with Serving(None, tmp_path) as serving:
        welcome = serving.output
        lines = re.findall(r"^  (.+)$", welcome, re.MULTILINE)
        ran = bash("\n".join(lines))
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / ".data").iterdir()}

    assert modes == {0o600}
    assert lines[0] == f"export VOICEGW_COLLECTOR_URL={serving.url}"
    assert lines[1].startswith("export VOICEGW_API_KEY=vk_")
    assert lines[2].startswith(f"curl -sS {serving.url}{HEARTBEAT} ")
    assert welcome.count("vk_") == 1
    assert '{"status":"accepted"' in ran.stdout
    assert re.search(r"hello-1 +hello +idle +0 +\d+s ago", ran.stdout)


def test_a_later_start_shows_no_key_and_names_the_command_that_mints_one(
    embedded_url: str, tmp_path: Path
) -> None:
    with Serving(embedded_url, tmp_path) as first:
        first.stop()

    with Serving(embedded_url, tmp_path) as later:
        welcome = later.output
        command = welcome.split("Mint another with: ")[1]
        minted = run(*shlex.split(command)[1:], env={"COLLECTOR_STORE_URL": embedded_url})
        listed = list_agents(later.url, minted.stdout.strip())

    assert "vk_" not in welcome
    assert (listed.returncode, listed.stdout) == (0, "No workers yet.\n")


@on_a_shared_store
def test_a_shared_store_never_gets_a_key_by_itself(store_url: str, tmp_path: Path) -> None:
    with Serving(store_url, tmp_path) as serving:
        listed = run("keys", "list", "--json", env={"COLLECTOR_STORE_URL": store_url})

        assert "collector keys create" in serving.output
        assert serving.key is None
        assert json.loads(listed.stdout) == []


def test_a_created_key_works_until_two_seconds_after_it_is_revoked(
    store_url: str, tmp_path: Path
) -> None:
    with Serving(store_url, tmp_path) as serving:
        created = create_key(store_url)
        with client(serving, created["key"]) as http:
            beat, roster = http.post(HEARTBEAT, json=body()), http.get("/v1/agents")

            revoked = run("keys", "revoke", created["id"], env={"COLLECTOR_STORE_URL": store_url})
            assert revoked.returncode == 0, revoked.stderr
            wait_until(lambda: http.get("/v1/agents").status_code == 401, seconds=2)

    assert (beat.status_code, roster.status_code) == (202, 200)


def test_keys_list_has_every_key_and_no_plaintext(store_url: str) -> None:
    created = create_key(store_url)
    run("keys", "revoke", created["id"], env={"COLLECTOR_STORE_URL": store_url})

    listed = run("keys", "list", env={"COLLECTOR_STORE_URL": store_url})

    assert re.search(
        rf"{created['id']} +acme +ingest,read +\S+ \S+ +never +never +revoked", listed.stdout
    )
    assert created["key"] not in listed.stdout + listed.stderr


@pytest.mark.parametrize("tenant", ["", "Acme", "a_b", "ü", "acme\n", "a" * 64])
def test_a_tenant_that_no_key_can_have_is_wrong_usage(tenant: str, tmp_path: Path) -> None:
    store = tmp_path / "never-made.db"

    refused = CliRunner().invoke(
        collector,
        ["keys", "create", "--tenant", tenant, "--scopes", "read"],
        env={"COLLECTOR_STORE_URL": f"sqlite:///{store}"},
    )

    assert (refused.exit_code, store.exists()) == (2, False)
    assert "a-z, 0-9 and -" in refused.stderr


@pytest.mark.parametrize("scopes", ["fly", "ingest,fly", "ingest,,read", ""])
def test_an_unknown_scope_is_wrong_usage(scopes: str, tmp_path: Path) -> None:
    store = tmp_path / "never-made.db"

    refused = CliRunner().invoke(
        collector,
        ["keys", "create", "--tenant", "acme", "--scopes", scopes],
        env={"COLLECTOR_STORE_URL": f"sqlite:///{store}"},
    )

    assert (refused.exit_code, store.exists()) == (2, False)
    assert "is not one of ingest, read, admin" in refused.stderr


def test_wrong_usage_exits_2_for_the_shell_too(embedded_url: str) -> None:
    command = ("keys", "create", "--tenant", "No!", "--scopes", "read")

    assert run(*command, env={"COLLECTOR_STORE_URL": embedded_url}).returncode == 2


def test_asking_where_nobody_listens_exits_3_and_says_how_to_start(closed_port: int) -> None:
    asked = list_agents(f"http://127.0.0.1:{closed_port}", UNKNOWN_KEY)

    assert "start one with: collector serve" in asked.stderr
    assert asked.returncode == 3


@pytest.mark.parametrize("key", [UNKNOWN_KEY, None], ids=["wrong", "none"])
def test_asking_without_a_key_that_opens_exits_4(
    key: str | None, embedded_url: str, tmp_path: Path
) -> None:
    with Serving(embedded_url, tmp_path) as serving:
        asked = list_agents(serving.url, key)

    assert "VOICEGW_API_KEY" in asked.stderr
    assert asked.returncode == 4


def test_any_agent_id_is_listed_as_it_is(embedded_url: str, tmp_path: Path) -> None:
    with Serving(embedded_url, tmp_path) as serving, client(serving, serving.key) as http:
        beat = http.post(HEARTBEAT, json=body(HOSTILE_ID))
        table = list_agents(serving.url, serving.key)
        answer = list_agents(serving.url, serving.key, "--json")

    assert beat.status_code == 202
    assert f"\n{HOSTILE_ID}  reception  idle" in table.stdout
    assert [each["agent_id"] for each in json.loads(answer.stdout)["workers"]] == [HOSTILE_ID]


def test_a_second_serve_on_the_same_embedded_store_is_refused(
    embedded_url: str, tmp_path: Path
) -> None:
    with Serving(embedded_url, tmp_path):
        second = run("serve", "--port", "0", env={"COLLECTOR_STORE_URL": embedded_url})

    assert f"another collector is serving {tmp_path}/embedded.db" in second.stderr
    assert second.returncode == 4


@on_a_shared_store
def test_a_shared_store_that_is_behind_is_not_served_before_migrate(
    empty_store_url: str, tmp_path: Path
) -> None:
    env = {"COLLECTOR_STORE_URL": empty_store_url}
    refused = run("serve", "--port", "0", env=env)
    migrated, again = run("migrate", env=env), run("migrate", env=env)

    with Serving(empty_store_url, tmp_path) as serving:
        ready = httpx2.get(f"{serving.url}/readyz", trust_env=False)

    assert "collector migrate" in refused.stderr
    assert (refused.returncode, refused.stdout) == (4, "")
    assert (migrated.returncode, again.stdout) == (0, "The store is up to date.\n")
    assert ready.status_code == 200


def test_a_store_that_does_not_answer_exits_3(closed_port: int) -> None:
    env = {"COLLECTOR_STORE_URL": f"postgresql://nobody@127.0.0.1:{closed_port}/none"}

    for command in (["serve", "--port", "0"], ["keys", "list"], ["migrate"]):
        failed = run(*command, env=env)

        assert re.fullmatch(r"collector: PostgreSQL: .+\n", failed.stderr)
        assert (failed.returncode, failed.stdout) == (3, "")


def test_a_file_that_can_not_be_a_store_exits_3(tmp_path: Path) -> None:
    failed = run("serve", "--port", "0", env={"COLLECTOR_STORE_URL": f"sqlite:///{tmp_path}"})

    assert re.fullmatch(r"collector: SQLite: .+\n", failed.stderr)
    assert (failed.returncode, failed.stdout) == (3, "")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("COLLECTOR_PORT", "eighty"),
        ("COLLECTOR_QUEUE_LIMIT", "3"),
        ("COLLECTOR_LOG_LEVEL", "loud"),
        ("COLLECTOR_STORE_URL", "mysql://root@127.0.0.1/presence"),
    ],
)
def test_a_wrong_setting_exits_2_and_is_named(
    variable: str, value: str, embedded_url: str, tmp_path: Path
) -> None:
    env = {"COLLECTOR_STORE_URL": embedded_url, variable: value}

    refused = run("serve", "--port", "0", env=env)

    assert re.fullmatch(rf"collector: {variable}: must be .+\n", refused.stderr)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_named_and_uses_up_no_first_key(embedded_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = run("serve", "--port", str(port), env={"COLLECTOR_STORE_URL": embedded_url})

    assert f"can't listen on 127.0.0.1:{port}" in failed.stderr
    assert "--port" in failed.stderr
    assert (failed.returncode, failed.stdout) == (1, "")
    with Serving(embedded_url, tmp_path) as serving:
        assert serving.key is not None


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, *path, name)


@pytest.mark.parametrize("path", list(commands(collector)), ids=" ".join)
def test_help_describes_every_command(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(collector, [*path, "--help"], prog_name="collector")

    usage, description, *_ = shown.stdout.split("\n\n")
    assert shown.exit_code == 0
    assert usage.startswith(f"Usage: {' '.join(['collector', *path])} ")
    assert re.match(r"  [A-Z].+[.;]", description)


def test_no_key_gets_into_the_log(store_url: str, tmp_path: Path) -> None:
    key = create_key(store_url)["key"]
    encoded = f"/v1/agents/%76k_{key[3:]}"
    paths = (f"/{key}", f"/v1/agents/{key}", encoded, f"/v1/agents?key={key}", f"/v1/agents?{key}")

    with Serving(store_url, tmp_path, env={"COLLECTOR_LOG_LEVEL": "debug"}) as serving:
        with client(serving, key) as http:
            answers = [http.get(path, headers={"X-Request-ID": key}) for path in paths]
            beat = http.post(HEARTBEAT, json=body(key))
        serving.stop()
        logged = serving.errors

    assert [answer.status_code for answer in answers] == [404, 404, 404, 422, 422]
    assert beat.status_code == 202
    assert "GET (a path with a key in it) 404" in logged
    assert key.removeprefix("vk_") not in logged


@asynccontextmanager
async def commits_held(store_url: str) -> AsyncIterator[None]:
    """No beat is committed in here: each that comes is in flight until the end."""
    if store_url.startswith("sqlite"):
        path = store_url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            yield
    else:
        server = await asyncpg.connect(store_url.replace("+asyncpg", ""))
        try:
            async with server.transaction():
                await server.execute("LOCK TABLE workers IN EXCLUSIVE MODE")
                yield
        finally:
            await server.close()


def beats_in_flight(serving: Serving) -> int:
    metrics = httpx2.get(f"{serving.url}/metrics", trust_env=False).text
    (depth,) = re.findall(r"^collector_queue_beats (\S+)$", metrics, re.MULTILINE)
    return int(float(depth))


def waits_for_answers(serving: Serving) -> bool:
    """Its listener is closed, and uvicorn has begun to wait for what is under way."""
    return "Waiting for connections to close" in serving.errors


async def test_a_stopping_collector_commits_and_answers_the_beats_in_flight(
    store_url: str, tmp_path: Path
) -> None:
    key = create_key(store_url)["key"]
    ids = {f"worker-{n}" for n in range(20)}

    with Serving(store_url, tmp_path) as serving:
        # The beats are let go before the group waits for their answers.
        async with (
            async_client(serving, key) as http,
            asyncio.TaskGroup() as tasks,
            commits_held(store_url),
        ):
            beats = [tasks.create_task(http.post(HEARTBEAT, json=body(each))) for each in ids]
            await asyncio.to_thread(wait_until, lambda: beats_in_flight(serving) == len(ids))
            end = tasks.create_task(asyncio.to_thread(serving.stop))
            await asyncio.to_thread(wait_until, lambda: waits_for_answers(serving))

    assert end.result() == 0
    assert {beat.result().status_code for beat in beats} == {202}
    assert stored_ids(store_url, tmp_path, key) == ids


async def beat_until_refused(http: httpx2.AsyncClient, name: str, accepted: set[str]) -> int | None:
    """Beat under ever new ids; the status that ended it, or None if there was no answer."""
    for agent_id in (f"{name}-{n}" for n in itertools.count()):
        try:
            answer = await http.post(HEARTBEAT, json=body(agent_id))
        except (httpx2.NetworkError, httpx2.RemoteProtocolError):
            return None
        if answer.status_code != 202:
            return answer.status_code
        accepted.add(agent_id)
    raise AssertionError


async def test_a_beat_sent_while_the_collector_stops_is_refused_or_kept(
    store_url: str, tmp_path: Path
) -> None:
    key = create_key(store_url)["key"]
    accepted: set[str] = set()

    with Serving(store_url, tmp_path) as serving:
        async with async_client(serving, key) as http, asyncio.TaskGroup() as tasks:
            ends = [
                tasks.create_task(beat_until_refused(http, f"worker-{n}", accepted))
                for n in range(32)
            ]
            await asyncio.to_thread(wait_until, lambda: len(accepted) > 500)
            code = await asyncio.to_thread(serving.stop)

    assert code == 0
    assert {end.result() for end in ends} <= {503, None}
    assert accepted <= stored_ids(store_url, tmp_path, key)
