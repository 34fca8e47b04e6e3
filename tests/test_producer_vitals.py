"""Memory and processor time, of what the machine and the cgroups around a process leave it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from contract.producer.vitals import Limits, Sampler, Vitals

MACHINE_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
PROCESSORS = float(os.cpu_count() or 1)


def limits(tmp_path: Path, own: str, files: dict[str, str]) -> Limits:
    """As this process would see them: its own groups, and these files below /sys/fs/cgroup."""
    (tmp_path / "cgroup").write_text(own)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Limits(tmp_path, tmp_path / "groups")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {}, MACHINE_BYTES),
        ("0::/", {"memory.max": "max\n"}, MACHINE_BYTES),
        ("0::/", {"memory.max": "1048576\n"}, 1_048_576),
        ("0::/a/b", {"a/memory.max": "2097152\n", "a/b/memory.max": "max\n"}, 2_097_152),
        ("0::/a/b", {"a/memory.max": "2097152\n", "a/b/memory.max": "1048576\n"}, 1_048_576),
        ("0::/../elsewhere", {"memory.max": "1048576\n"}, 1_048_576),
        ("4:memory:/a\n0::/", {"memory/a/memory.limit_in_bytes": "1048576\n"}, 1_048_576),
        ("4:memory:/a", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE_BYTES),
    ],
)
def test_memory_in_total_is_the_tightest_limit(
    tmp_path: Path, own: str, files: dict[str, str], expected: int
) -> None:
    assert limits(tmp_path, own, files).memory_bytes() == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {}, PROCESSORS),
        ("0::/", {"cpu.max": "max 100000\n"}, PROCESSORS),
        ("0::/a", {"a/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/a/b", {"a/cpu.max": "25000 100000\n", "a/b/cpu.max": "50000 100000\n"}, 0.25),
        (
            "3:cpu,cpuacct:/a",
            {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        (
            "3:cpu,cpuacct:/a",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            PROCESSORS,
        ),
    ],
)
def test_processors_are_those_that_the_quota_leaves(
    tmp_path: Path, own: str, files: dict[str, str], expected: float
) -> None:
    assert limits(tmp_path, own, files).processors() == expected


def test_processor_time_is_counted_since_the_sample_before() -> None:
    sampler = Sampler()
    first = sampler.sample()
    ends = time.process_time() + 0.2
    while time.process_time() < ends:
        pass
    busy = sampler.sample()

    assert first.cpu_pct is None
    assert busy.cpu_pct is not None
    assert 0 < busy.cpu_pct <= 100


def test_resident_memory_is_what_the_system_says() -> None:
    grown = bytearray(64 * 1024 * 1024)
    for at in range(0, len(grown), 4_096):
        grown[at] = 1
    with_it = Sampler().sample().memory_rss_bytes
    del grown
    without = Sampler().sample().memory_rss_bytes

    assert with_it is not None
    assert without is not None
    assert with_it - without > 32 * 1024 * 1024


def test_a_system_that_tells_nothing_is_no_trouble(tmp_path: Path) -> None:
    vitals = Sampler(tmp_path / "no-proc", tmp_path / "no-cgroups").sample()

    assert vitals == Vitals(None, MACHINE_BYTES, None)
