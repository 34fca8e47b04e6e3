"""The workers that beat in a measurement: 10,000 of 50 tenants, one key a tenant.

A worker's beat is the 15 fields of the real producer. It is described once, here: as a template
for the load generator, and as values for the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector import keys
from collector.clock import SystemClock
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat
from collector.workers import microseconds
from contract.vocabulary import KEY_LENGTH, KEY_PREFIX

TENANTS = 50
WORKERS = 10_000
# Both keep their width, so that every beat has the same length.
NUMBER = "#####"
SESSIONS = 1000
CHUNK = 1000

BODY: dict[str, Any] = {
    "agent_id": f"worker-{NUMBER}",
    "agent_name": "voice-agent",
    "status": "busy",
    "active_sessions": SESSIONS,
    "version": "1.4.2",
    "project": "support",
    "tenant_id": None,
    "region": "eu-central",
    "host": f"worker-{NUMBER}.fleet.internal",
    "started_at": 1_790_000_000.25,
    "ts": 1_790_000_123.5,
    "dispatch_name": "inbound",
    "memory_rss_bytes": 412_000_000,
    "memory_total_bytes": 8_000_000_000,
    "cpu_pct": 12.5,
}


@dataclass(frozen=True)
class Fleet:
    """Worker n belongs to tenant n modulo 50."""

    keys: tuple[str, ...]

    def write(self, path: Path) -> None:
        """What beats.lua reads: the template, then a key a line."""
        path.write_text("\n".join((json.dumps(BODY), *self.keys)) + "\n")


# For a server that asks for no key: beats of the same length all the same.
STRANGERS = Fleet(tuple(KEY_PREFIX + "A" * KEY_LENGTH for _ in range(TENANTS)))


async def enlist(store: Store) -> Fleet:
    """Mint a key for every tenant."""
    now = SystemClock().now()
    minted = [
        (await keys.create(store, _tenant(n), ["ingest"], now=now))[1] for n in range(TENANTS)
    ]
    return Fleet(tuple(minted))


async def muster(store: Store) -> None:
    """Everybody is there, has just beaten, and has the sessions that a window begins with.

    Without it the slow variants would come round to some workers only after the 45 s in which
    a worker counts as alive, and each such beat would be a return, not a mere beat.
    """
    now = SystemClock().now()
    beats = sorted(_beats(now))
    for start in range(0, WORKERS, CHUNK):
        await store.commit(beats[start : start + CHUNK], now=now, gone=NO_GAP)


def _beats(stamp: int) -> Iterator[Beat]:
    rest = {name: value for name, value in BODY.items() if name in Beat._fields}
    rest |= {"started_at": microseconds(BODY["started_at"]), "ts": microseconds(BODY["ts"])}
    for n in range(WORKERS):
        named = {
            "tenant_id": _tenant(n),
            "agent_id": _numbered("agent_id", n),
            "host": _numbered("host", n),
        }
        yield Beat(**{**rest, **named, "last_seen": stamp})


def _numbered(field: str, n: int) -> str:
    return str(BODY[field]).replace(NUMBER, f"{n:05}")


def _tenant(n: int) -> str:
    return f"tenant-{n % TENANTS:02}"
