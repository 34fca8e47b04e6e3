"""What the collector counts about itself; no tenant's name is ever a label.

Where several processes serve one port, each keeps its figures in files of a shared directory (the
library's multiprocess mode, which its variable turns on before import), and whichever is asked
tells the sum of all.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess
from prometheus_client.exposition import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from collector import __version__

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
REFRESH_SECONDS = 2.0
# How old the figures may be that somebody is told.
FRESH_SECONDS = 1.0
BATCH_SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """One registry an app, so that two apps in one process never share a counter."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        self._readings: list[tuple[Gauge, Callable[[], float]]] = []
        self._tallies: list[tuple[Counter, Callable[[], int]]] = []
        # The newest exposition, when it was made, and the task that makes the next one.
        self._rendered = b""
        self._rendered_at = -math.inf
        self._rendering: asyncio.Task[None] | None = None
        Gauge(
            "collector_build_info",
            "Version of the code; always 1.",
            ["version", "python"],
            multiprocess_mode="livemax",
            registry=registry,
        ).labels(__version__, platform.python_version()).set(1)
        self.beats = Counter(
            "collector_beats",
            "Heartbeats by outcome: accepted, or the code of the error they got.",
            ["outcome"],
            registry=registry,
        )
        self.accepted = self.beats.labels("accepted")
        self.batch_size = Histogram(
            "collector_batch_beats", "Beats in a commit.", buckets=BATCH_SIZES, registry=registry
        )
        self.commit_seconds = Histogram(
            "collector_commit_seconds",
            "Time of a commit.",
            buckets=COMMIT_SECONDS,
            registry=registry,
        )
        self.commit_retries = Counter(
            "collector_commit_retries",
            "Commits tried again after the store failed.",
            registry=registry,
        )
        self.refusals = Counter(
            "collector_refusals",
            "Requests that were refused, by the code of the error.",
            ["code"],
            registry=registry,
        )
        # There from the start, so that an alert on them has something to look at.
        for code in ("too_many_reads", "too_many_subscribers"):
            self.refusals.labels(code)
        self.key_cache = Counter(
            "collector_key_cache",
            "Look-ups of presented keys: hit, wrong (a known wrong key) or miss.",
            ["outcome"],
            registry=registry,
        )
        self.key_hit = self.key_cache.labels("hit")
        self.argon2_runs = Counter(
            "collector_argon2_runs", "Key verifications that ran argon2.", registry=registry
        )

    def watch(
        self, name: str, about: str, read: Callable[[], float], *, worst: bool = False
    ) -> None:
        """A gauge that is read when somebody looks; of several processes the sum, or the worst."""
        mode: Literal["livemax", "livesum"] = "livemax" if worst else "livesum"
        gauge = Gauge(name, about, multiprocess_mode=mode, registry=self.registry)
        self._readings.append((gauge, read))

    def tally(self, counter: Counter, take: Callable[[], int]) -> None:
        """A counter that grows by what `take` hands over, for what every beat would count."""
        self._tallies.append((counter, take))

    def refresh(self) -> None:
        """Read every gauge now, and hear of every tally."""
        for counter, take in self._tallies:
            counter.inc(take())
        for gauge, read in self._readings:
            gauge.set(read())

    async def follow(self) -> None:
        """Keep what is read and tallied fresh for the other processes: one of them may be asked."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            self.refresh()

    async def exposition(self) -> bytes:
        """The format that Prometheus scrapes, made once a second at most for all who ask.

        Nobody needs a key for it, and to make it holds the event loop for as long as many beats.
        """
        if time.monotonic() - self._rendered_at >= FRESH_SECONDS:
            if self._rendering is None:
                self._rendering = asyncio.create_task(self._render(), name="metrics")
            await asyncio.shield(self._rendering)
        return self._rendered

    async def _render(self) -> None:
        try:
            self.refresh()
            shared = os.environ.get(DIRECTORY)
            if shared:
                # It reads the files of all processes.
                self._rendered = await asyncio.to_thread(_of_everybody, Path(shared))
            else:
                self._rendered = generate_latest(self.registry)
            self._rendered_at = time.monotonic()
        finally:
            self._rendering = None


def _of_everybody(directory: Path) -> bytes:
    everybody = CollectorRegistry()
    multiprocess.MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
    everybody.register(Processes(directory))
    return generate_latest(everybody)


class Processes:
    """Memory, processor time and files of all processes that share a directory, added up."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        pids = {int(path.stem.rpartition("_")[2]) for path in self._directory.glob("counter_*.db")}
        total: dict[str, Metric] = {}
        for pid in pids:
            for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                _add(total.setdefault(metric.name, metric), metric)
        yield from total.values()


def _add(total: Metric, metric: Metric) -> None:
    if total is metric:
        return
    combine = min if metric.name == "process_start_time_seconds" else sum
    total.samples = [
        ours._replace(value=combine((ours.value, theirs.value)))
        for ours, theirs in zip(total.samples, metric.samples, strict=True)
    ]


def forget_process(pid: int, directory: str) -> None:
    """A process is gone: its gauges no longer count."""
    multiprocess.mark_process_dead(pid, directory)  # type: ignore[no-untyped-call]
