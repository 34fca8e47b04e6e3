"""What processes have used so far, as the kernel counts it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

T = TypeVar("T", int, float)


def cpu_seconds(pid: int) -> float:
    """The process's own processor time, and that of the children it has waited for."""
    # After the name, which may hold spaces, the third field is the first.
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]).split()
    return sum(map(int, fields[11:15])) / _TICKS_A_SECOND


def of_family(read: Callable[[int], T], pid: int) -> T:
    """Of the children that live, then of the process: it has the time of those that end between."""
    of_children = []
    for child in family(pid)[1:]:
        with suppress(FileNotFoundError, ProcessLookupError):
            of_children.append(read(child))
    return sum(of_children, read(pid))


def family(pid: int) -> list[int]:
    """The process and its children, whichever of its threads has started them."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def peak_bytes(pid: int) -> int:
    """The most memory that the process itself ever had, without its children's."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def written_bytes(pid: int) -> int:
    """Sent to the disk, whole pages of the system each."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
