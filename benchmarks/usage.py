"""What processes have used so far, as the kernel counts it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """The process's own processor time, and that of the children it has waited for."""
    # After the name, which may hold spaces, the third field is the first.
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]).split()
    return sum(map(int, fields[11:15])) / _TICKS_A_SECOND


def family_cpu_seconds(pid: int) -> float:
    """With the children that live; who ends meanwhile is waited for, and so is counted last."""
    living = 0.0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):
            living += cpu_seconds(int(child))
    return living + cpu_seconds(pid)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def written_bytes(pid: int) -> int:
    """Sent to the disk, whole pages of the system each."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
