"""Commands as a person at a terminal sees them."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping
from pathlib import Path

from tests.processes import COMMAND, DEADLINE_SECONDS, environment


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
