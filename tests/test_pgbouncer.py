"""Collectors behind a real pgbouncer in transaction mode, with the direct URL that it needs."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import URL, make_url

from conformance import pgwire
from conformance.postgres import ACCOUNT, GROUPS, PORTS
from tests.factories import body
from tests.processes import DEADLINE_SECONDS, Serving, run, wait_until
from tests.strict import skip
from tests.test_several_processes import HEARTBEAT, client, following, on_a_shared_store

BEATS = 300
READS = ("/v1/agents", "/v1/summary", "/v1/agents/worker-1/timeline", "/v1/events?last=10")
# Fewer than the clients have connections: a transaction rarely finds the server of the last one.
SERVER_CONNECTIONS = 3

pytestmark = pytest.mark.usefixtures("anyio_backend")


class Pooler:
    """One pgbouncer on a free port; its clients need no password, whatever the server wants."""

    def __init__(self, program: str, server: URL) -> None:
        self._server = server
        self._port = _free_port()
        # Not below pytest's directory, which is closed to the account that it runs as.
        self._directory = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
        self._log = self._directory / "log"
        config = self._directory / "pgbouncer.ini"
        config.write_text(self._config())
        if ACCOUNT is not None:
            for path in (config, self._directory):
                os.chown(path, ACCOUNT, ACCOUNT)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                user=ACCOUNT,  # pgbouncer, too, refuses to run as root
                group=ACCOUNT,
                extra_groups=GROUPS,
            )

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{self._server.database}"

    @property
    def transactions(self) -> int:
        """How many it has passed on so far, for all databases."""
        totals = pgwire.query(self._port, "SHOW TOTALS", "pgbouncer")
        return int(dict(line.split("|")[:2] for line in totals.splitlines())["total_xact_count"])

    def wait(self) -> None:
        wait_until(lambda: self._process.poll() is not None or self._is_listening())
        assert self._process.poll() is None, self._log.read_text()

    def end(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)
        shutil.rmtree(self._directory)

    def _is_listening(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False

    def _config(self) -> str:
        server = self._server
        place = f"host={server.host} port={server.port or 5432} dbname={server.database}"
        password = f" password={server.password}" if server.password else ""
        return f"""
[databases]
{server.database} = {place} user={server.username}{password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self._port}
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
default_pool_size = {SERVER_CONNECTIONS}
"""


def _free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def pooling(server: str) -> Iterator[Pooler]:
    # Debian has it where only root's PATH leads.
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        skip("no pgbouncer on this machine")
    pooler = Pooler(program, make_url(server))
    try:
        pooler.wait()
        yield pooler
    finally:
        pooler.end()


@pytest.fixture
def pooler(empty_store_url: str) -> Iterator[Pooler]:
    """In front of a database that nobody migrated."""
    with pooling(empty_store_url) as running:
        yield running


@pytest.fixture
def settings(pooler: Pooler, empty_store_url: str) -> dict[str, str]:
    return {"COLLECTOR_STORE_URL": pooler.url, "COLLECTOR_DIRECT_URL": empty_store_url}


@pytest.fixture
def key(settings: dict[str, str]) -> str:
    """Of a store that the command line brought up to date, through the pooler too."""
    migrated = run("migrate", env=settings)
    assert migrated.returncode == 0, migrated.stderr
    create = ("keys", "create", "--tenant", "acme", "--scopes", "ingest,read")
    created = run(*create, env=settings)
    assert created.returncode == 0, created.stderr
    return next(word for word in created.stdout.split() if word.startswith("vk_"))


async def in_turns(http: httpx2.AsyncClient) -> Counter[int]:
    """Beats and reads, some dozens at a time over as many connections; the answers by status."""
    at_once = asyncio.Semaphore(24)

    async def ask(n: int) -> tuple[int, int]:
        async with at_once:
            told = await http.post(HEARTBEAT, json=body(f"worker-{n % 50}", active_sessions=n))
            read = await http.get(READS[n % len(READS)])
        return told.status_code, read.status_code

    answers = await asyncio.gather(*map(ask, range(BEATS)))
    return Counter(status for pair in answers for status in pair)


@on_a_shared_store
async def test_beats_and_reads_all_succeed_behind_a_pooler_in_transaction_mode(
    pooler: Pooler, settings: dict[str, str], key: str, tmp_path: Path
) -> None:
    with Serving(None, tmp_path, env=settings) as serving:
        async with client(serving, key) as http:
            await http.post(HEARTBEAT, json=body("worker-1"))
            before = pooler.transactions
            answers = await in_turns(http)
            passed_on = pooler.transactions - before
            ready = await http.get("/readyz")
        stopped, logged = serving.stop(), serving.errors

    assert answers == {202: BEATS, 200: BEATS}
    assert passed_on >= BEATS  # the reads; pgbouncer, not the server itself, was asked
    assert (ready.status_code, stopped) == (200, 0)
    assert "ERROR" not in logged


@on_a_shared_store
async def test_a_change_wakes_the_followers_of_another_collector_behind_the_pooler(
    settings: dict[str, str], key: str, tmp_path: Path
) -> None:
    names = [f"worker-{n}" for n in range(10)]
    with (
        Serving(None, tmp_path, env=settings) as first,
        Serving(None, tmp_path, env=settings) as second,
    ):
        async with (
            client(first, key) as one,
            client(second, key) as other,
            following(other) as stream,
            asyncio.timeout(5),
        ):
            told = []
            # Each is sent when the last one came: by the poll alone, ten take nine seconds.
            for name in names:
                await one.post(HEARTBEAT, json=body(name))
                told.append((await stream.next(past=("vitals",)))["data"]["worker"])

    assert [worker["agent_id"] for worker in told] == names
