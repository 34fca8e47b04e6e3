"""Keys that are put into a store, many at once; each is a real one."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from collector import keys
from collector.clock import SystemClock
from collector.store.protocol import Store
from collector.values import Key
from contract.vocabulary import Scope

Minted = tuple[Key, str]
# Fewer keys than this are made before other processes have started.
MANY = 50


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
