"""Processes of this machine: which are there, and how to end one with its children."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


def shut_down(pid: int) -> None:
    """SIGINT is a fast shutdown to a server and the end to initdb; SIGKILL if it takes too long."""
    os.kill(pid, signal.SIGINT)
    try:
        wait_until(lambda: not is_alive(pid))
    except TimeoutError:
        kill(pid)


def kill(pid: int) -> None:
    """SIGKILL a postmaster and its children; it is halted first, so that it can't fork another."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _state(pid) in ("T", *ENDED))
    children = [child for child, process in processes().items() if process.parent == pid]
    for each in [*children, pid]:
        os.kill(each, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, [*children, pid])))


def end_on_sigterm() -> None:
    """Leave through every `finally`, so that no child and no directory stays behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


class Process(NamedTuple):
    parent: int
    state: str


# No such process, or a zombie: when we were killed there may be nobody to reap it.
ENDED = ("", "Z")


def is_alive(pid: int) -> bool:
    return _state(pid) not in ENDED


def _state(pid: int) -> str:
    process = processes(str(pid)).get(pid)
    return process.state if process else ""


def processes(pids: str = "[0-9]*") -> dict[int, Process]:
    """At least those asked for, from /proc or else from ps, which small images don't have."""
    if Path("/proc/self/stat").exists():
        rows = filter(None, map(_proc_row, Path("/proc").glob(f"{pids}/stat")))
    else:
        command = ["ps", "-A", "-o", "pid=,stat=,ppid="]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = filter(None, map(str.split, listing.splitlines()))
    return {int(pid): Process(int(parent), state[0]) for pid, state, parent in rows}


def _proc_row(stat: Path) -> list[str]:
    """Id, state and parent; nothing for a process that just ended or is hidden from us."""
    try:
        before, _, after = stat.read_text(errors="replace").rpartition(")")
    except OSError:
        return []
    return [before.split()[0], *after.split()[:2]]


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} seconds")
        time.sleep(0.01)
