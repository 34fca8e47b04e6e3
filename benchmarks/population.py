"""Workers that are put into a store as if they had beaten, and keys as if they had been minted."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benchmarks.fleet import BODY, CHUNK
from collector import keys
from collector.clock import SystemClock
from collector.store.protocol import Store
from collector.values import NO_GAP, Beat, Key
from collector.workers import microseconds
from contract.vocabulary import Scope

Minted = tuple[Key, str]
# Fewer keys than this are made before other processes have started.
MANY = 50
# A worker's tenant, its name and when it last beat.
Sighting = tuple[str, str, int]


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
        named = {"tenant_id": tenant_id, "agent_id": agent_id, "host": f"{agent_id}.fleet.internal"}
        yield Beat(**{**rest, **named, "last_seen": stamp})


async def mint(tenants: Sequence[str], scopes: tuple[Scope, ...]) -> list[Minted]:
    """A real key for each; argon2 takes its time, so many of them are made on all cores."""
    one = partial(keys.mint, scopes=scopes, now=SystemClock().now())
    return await asyncio.to_thread(_mapped, one, tenants)


def _mapped(one: partial[Minted], tenants: Sequence[str]) -> list[Minted]:
    if len(tenants) < MANY:
        return list(map(one, tenants))
    cores = len(os.sched_getaffinity(0))
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=fresh) as pool:
        return list(pool.map(one, tenants, chunksize=10))


async def admit(store: Store, minted: Iterable[Minted]) -> None:
    for key, _ in minted:
        await store.add_key(key)
