"""How much memory and processor time this process takes, of what it may have."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc/self")
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Vitals:
    """One sample; what this system does not tell is None."""

    memory_rss_bytes: int | None
    memory_total_bytes: int | None
    cpu_pct: float | None


class Sampler:
    """Takes samples; processor time is counted since the one before."""

    def __init__(self, proc: Path = PROC, cgroups: Path = CGROUPS) -> None:
        self._proc = proc
        self._limits = Limits(proc, cgroups)
        self._last: tuple[float, float] | None = None

    def sample(self) -> Vitals:
        try:
            return Vitals(self._resident(), self._limits.memory_bytes(), self._cpu_pct())
        except (OSError, ValueError):
            return Vitals(None, None, None)

    def _resident(self) -> int | None:
        try:
            pages = int((self._proc / "statm").read_text().split()[1])
        except FileNotFoundError:
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _cpu_pct(self) -> float | None:
        """A share of all the processors that this process may use, since the last sample."""
        now, before = (time.monotonic(), time.process_time()), self._last
        self._last = now
        if before is None or now[0] <= before[0]:
            return None
        share = (now[1] - before[1]) / (now[0] - before[0]) / self._limits.processors()
        return round(min(max(share * 100, 0.0), 100.0), 1)


class Limits:
    """The machine's size, or what the cgroups around this process leave of it."""

    def __init__(self, proc: Path, cgroups: Path) -> None:
        self._proc = proc
        self._cgroups = cgroups

    def memory_bytes(self) -> int | None:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        given = [*self._numbers("memory.max"), *self._numbers("memory.limit_in_bytes", "memory")]
        return min([machine, *(limit for (limit, *_) in given if limit > 0)])

    def processors(self) -> float:
        quotas = [quota / period for quota, period in self._quotas() if quota > 0 and period > 0]
        return min([float(os.cpu_count() or 1), *quotas])

    def _quotas(self) -> Iterator[tuple[int, int]]:
        for numbers in self._numbers("cpu.max"):
            if len(numbers) == 2:
                yield numbers[0], numbers[1]
        quotas = self._numbers("cpu.cfs_quota_us", "cpu")
        for quota, period in zip(quotas, self._numbers("cpu.cfs_period_us", "cpu"), strict=False):
            yield quota[0], period[0]

    def _numbers(self, name: str, controller: str = "") -> list[list[int]]:
        """What `name` says in this process's group and in those around it; `max` is no limit."""
        found = []
        for group in self._groups(controller):
            try:
                found.append([int(word) for word in (group / name).read_text().split()])
            except (OSError, ValueError):
                continue
        return found

    def _groups(self, controller: str) -> Iterator[Path]:
        """From the innermost outwards; version 1 has a tree for each controller, 2 has one."""
        root = self._cgroups / controller
        inner = root / self._own(controller).lstrip("/")
        yield inner
        yield from (outer for outer in inner.parents if outer.is_relative_to(root))

    def _own(self, controller: str) -> str:
        try:
            lines = (self._proc / "cgroup").read_text().splitlines()
        except OSError:
            return ""
        for line in lines:
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                return path
        return ""
