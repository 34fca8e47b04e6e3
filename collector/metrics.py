"""What the collector counts about itself; no tenant's name is ever a label."""

from __future__ import annotations

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from collector import __version__

BATCH_SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """One registry an app, so that two apps in one process never share a counter."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        Info("collector_build", "Version of the code.", registry=registry).info(
            {"version": __version__, "python": platform.python_version()}
        )
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
        self.queue_depth = Gauge(
            "collector_queue_beats", "Beats waiting for their commit.", registry=registry
        )
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
        self.subscribers = Gauge(
            "collector_subscribers", "Event streams that are open.", registry=registry
        )
        self.clock_skew = Gauge(
            "collector_clock_skew_seconds",
            "How far this machine's wall clock is ahead of the collector's.",
            registry=registry,
        )

    def render(self) -> bytes:
        """The exposition format that Prometheus scrapes."""
        return generate_latest(self.registry)
