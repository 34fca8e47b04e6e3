"""The workers that beat in a measurement: 10,000 of 50 tenants, one key a tenant, unless told.

A worker's beat is the 15 fields of the real producer. It is described once, here: as a template
for the load generators, and as values for the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
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
NUMBER = "######"
SESSIONS = 1000
CHUNK = 5000
DOMAIN = ".fleet.internal"
# A worker's tenant, its name and when it last beat.
Sighting = tuple[str, str, int]
# It has no factor in common with any number of workers here: taking every so-many-th of them,
# round and round, comes to all parts of the fleet and to all tenants.
SCATTERED = 7919

BODY: dict[str, Any] = {
    "agent_id": f"worker-{NUMBER}",
    "agent_name": "voice-agent",
    "status": "busy",
    "active_sessions": SESSIONS,
    "version": "1.4.2",
    "project": "support",
    "tenant_id": None,
    "region": "eu-central",
    "host": f"worker-{NUMBER}{DOMAIN}",
    "started_at": 1_790_000_000.25,
    "ts": 1_790_000_123.5,
    "dispatch_name": "inbound",
    "memory_rss_bytes": 412_000_000,
    "memory_total_bytes": 8_000_000_000,
    "cpu_pct": 12.5,
}
HEAD = """POST /v1/agents/heartbeat HTTP/1.1\r
Host: collector\r
Authorization: Bearer {key}\r
Content-Type: application/json\r
Content-Length: {length}\r
\r
"""


@dataclass(frozen=True)
class Fleet:
    """Worker n belongs to tenant n modulo the number of keys."""

    keys: tuple[str, ...]
    workers: int = WORKERS
    # How many of the workers beat, each `stride` after the one before.
    beating: int = WORKERS
    stride: int = 1

    def numbers(self) -> Iterator[int]:
        """Of those that beat, in the order in which they do."""
        return (place * self.stride % self.workers for place in range(self.beating))

    def tenant(self, n: int) -> str:
        return f"tenant-{n % len(self.keys):05}"

    def key(self, n: int) -> str:
        return self.keys[n % len(self.keys)]

    def request(self, n: int) -> bytes:
        """Worker n's beat as it is sent."""
        body = json.dumps(BODY).replace(NUMBER, f"{n:06}")
        return (HEAD.format(key=self.key(n), length=len(body)) + body).encode()

    def write(self, path: Path) -> None:
        """What beats.lua and `read` read: the template, the numbers, then a key a line."""
        numbers = f"{self.workers} {self.beating} {self.stride}"
        path.write_text("\n".join((json.dumps(BODY), numbers, *self.keys)) + "\n")

    @classmethod
    def read(cls, path: Path) -> Fleet:
        _, numbers, *minted = path.read_text().splitlines()
        return cls(tuple(minted), *map(int, numbers.split()))


def strangers(
    tenants: int = TENANTS, workers: int = WORKERS, *, beating: int = 0, stride: int = 1
) -> Fleet:
    """A fleet whose keys nobody knows, of the right length all the same; all beat unless told."""
    nobodys = (KEY_PREFIX + "A" * KEY_LENGTH,) * tenants
    return Fleet(nobodys, workers, beating or workers, stride)


# For a server that asks for no key.
STRANGERS = strangers()


async def enlist(store: Store) -> Fleet:
    """Mint a key for every tenant."""
    now = SystemClock().now()
    minted = [
        (await keys.create(store, STRANGERS.tenant(n), ["ingest"], now=now))[1]
        for n in range(TENANTS)
    ]
    return Fleet(tuple(minted))


async def muster(store: Store, fleet: Fleet = STRANGERS) -> None:
    """Who beats is there, has just beaten, and has the sessions that a window begins with.

    Without it the slow variants would come round to some workers only after the 45 s in which
    a worker counts as alive, and each such beat would be a return, not a mere beat.
    """
    now = SystemClock().now()
    await settle(store, ((fleet.tenant(n), numbered("agent_id", n), now) for n in fleet.numbers()))


async def settle(store: Store, seen: Iterable[Sighting]) -> None:
    """As if the store had been told of each when it beat."""
    beats = sorted(_beats(seen))
    for start in range(0, len(beats), CHUNK):
        chunk = beats[start : start + CHUNK]
        now = max(beat.last_seen for beat in chunk)
        await store.commit(chunk, now=now, gone=NO_GAP)


def _beats(seen: Iterable[Sighting]) -> Iterator[Beat]:
    rest = {name: value for name, value in BODY.items() if name in Beat._fields}
    rest |= {"started_at": microseconds(BODY["started_at"]), "ts": microseconds(BODY["ts"])}
    for tenant_id, agent_id, stamp in seen:
        named = {"tenant_id": tenant_id, "agent_id": agent_id, "host": agent_id + DOMAIN}
        yield Beat(**{**rest, **named, "last_seen": stamp})


def numbered(field: str, n: int) -> str:
    """Worker n's own text in this field of its beat."""
    return str(BODY[field]).replace(NUMBER, f"{n:06}")
