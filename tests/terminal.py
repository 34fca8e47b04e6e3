"""Commands as a person at a terminal sees them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.processes import COMMAND, DEADLINE_SECONDS, environment

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOME = "\x1b[H"


def run_on_terminal(
    *args: str, env: Mapping[str, str], columns: int = 80, cwd: Path = Path("/")
) -> str:
    """Run one command of the collector on a terminal of this width; all that it wrote there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [COMMAND, *args],
        env=environment({"TERM": "xterm", **env}),
        cwd=cwd,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as process:
        os.close(slave)
        shown = _all(master)
        process.wait(DEADLINE_SECONDS)
    return shown.replace("\r\n", "\n")


class Session:
    """A command at work on a terminal of 80 by 24, which a person looks at and types into."""

    def __init__(self, *args: str, env: Mapping[str, str], rows: int = 24, columns: int = 80):
        self._master, self._slave = pty.openpty()
        self.resize(rows, columns)
        self.modes_before = self.modes
        self.written = ""
        self._process = subprocess.Popen(
            [COMMAND, *args],
            env=environment({"TERM": "xterm", **env}),
            cwd="/",
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)
        os.close(self._slave)
        os.close(self._master)

    @property
    def modes(self) -> list[Any]:
        """How the terminal is set: whether it echoes, waits for whole lines, and so on."""
        return termios.tcgetattr(self._slave)

    @property
    def screen(self) -> str:
        """What was drawn since the cursor was last put at the top, without colours."""
        return ANSI.sub("", self.written.rpartition(HOME)[2]).replace("\r\n", "\n")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def is_stopped(self) -> bool:
        """Whether it does nothing until it is continued."""
        how = os.WSTOPPED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, how) is not None

    def sees(self, condition: Callable[[str], bool]) -> str:
        """Look until the screen is as told; the screen."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition(self.screen):
            if time.monotonic() > deadline:
                raise TimeoutError(self.screen)
            self._read()
        return self.screen

    def end(self) -> int:
        """Wait for its end; the exit code."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            self._read()
        code = self._process.wait(1)
        self._read()
        return code

    def _read(self) -> None:
        ready, _, _ = select.select([self._master], [], [], 0.1)
        if ready:
            self.written += os.read(self._master, 65536).decode(errors="replace")


def _all(master: int) -> str:
    found = b""
    try:
        while some := os.read(master, 65536):
            found += some
    except OSError:  # Linux says so when nobody is at the other end any more
        pass
    finally:
        os.close(master)
    return found.decode()
