"""The real `collector` command, in processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Self

from conformance.processes import is_alive, processes

COMMAND = Path(sys.executable).with_name("collector")
DEADLINE_SECONDS = 30
NOTHING: Mapping[str, str] = {}


def run(
    *args: str, env: Mapping[str, str], cwd: Path = Path("/"), answer: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one command of the collector to its end, with that on its standard input."""
    return subprocess.run(
        [COMMAND, *args],
        env=environment(env),
        cwd=cwd,
        input=answer,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


def create_key(store_url: str, tenant: str = "acme", scopes: str = "ingest,read") -> dict[str, Any]:
    """A key with these scopes, as `keys create --json` prints it."""
    command = ("keys", "create", "--tenant", tenant, "--scopes", scopes, "--json")
    created = run(*command, env={"COLLECTOR_STORE_URL": store_url})
    assert created.returncode == 0, created.stderr
    key: dict[str, Any] = json.loads(created.stdout)
    return key


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """No setting of the caller's shell gets in; the command is found as after an install."""
    search = os.pathsep.join([str(COMMAND.parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": search, **given}


def wait_until(condition: Callable[[], bool], *, seconds: float = DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} seconds")
        time.sleep(0.01)


class Serving:
    """`collector serve`, by default on a free port, from its welcome on.

    Nothing of it outlives the block.
    """

    def __init__(
        self,
        store_url: str | None,
        cwd: Path,
        *,
        port: int = 0,
        env: Mapping[str, str] = NOTHING,
        log: int | None = None,
    ) -> None:
        store = {} if store_url is None else {"COLLECTOR_STORE_URL": store_url}
        with ExitStack() as stack:
            # Files, not pipes: nobody has to read them for the collector to go on writing.
            self._stdout = stack.enter_context(TemporaryFile())
            self._stderr = stack.enter_context(TemporaryFile())
            self._process = subprocess.Popen(
                [COMMAND, "serve", "--port", str(port)],
                env=environment({**store, **env}),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=self._stdout,
                stderr=self._stderr if log is None else log,
            )
            stack.callback(self.kill)
            wait_until(lambda: self._address() is not None or self._process.poll() is not None)
            self.url = self._address() or ""
            assert self.url, f"exit code {self._process.returncode}:\n{self.errors}"
            self._closing = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if failure:
            sys.stderr.write(self.errors)
        self._closing.close()

    @property
    def output(self) -> str:
        """What it has told people so far."""
        return text_of(self._stdout)

    @property
    def errors(self) -> str:
        """What it has logged so far."""
        return text_of(self._stderr)

    @property
    def key(self) -> str | None:
        """The key that a first start shows."""
        shown = re.search(r"VOICEGW_API_KEY=(vk_\w+)", self.output)
        return shown[1] if shown else None

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self, *, within: float = DEADLINE_SECONDS) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self._process.wait(within)

    def kill(self) -> None:
        """SIGKILL; a collector that has ended is left alone."""
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)

    def _address(self) -> str | None:
        named = re.search(r"listens on (http://\S+),", self.output)
        return named[1] if named else None


def text_of(file: IO[bytes]) -> str:
    """All of it, without moving the place where the other process writes."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()


def children(parent: int) -> set[int]:
    """Whoever it has started and lives."""
    return {pid for pid, each in processes().items() if each.parent == parent and is_alive(pid)}
