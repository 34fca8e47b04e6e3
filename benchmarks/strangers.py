"""Those whose keys the collector does not know yet, or never will."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from argon2 import PasswordHasher

from benchmarks import load, wrk
from benchmarks.population import Minted
from benchmarks.stage import Stage

FLOODERS = 8
SCRIPT = Path(__file__).with_name("wrong_keys.lua")
# What the 503's Retry-After asks for, in seconds; a producer keeps to it.
RETRY_SECONDS = 1


async def all_served(stage: Stage, minted: Sequence[Minted]) -> float:
    """Everybody comes at once, each on a connection of its own; seconds until the last is served.

    Whoever is told to come back does so as long after as the answer asks for.
    """
    began = time.perf_counter()
    await asyncio.gather(*(_served(stage, *each) for each in enumerate(key for _, key in minted)))
    return time.perf_counter() - began


async def _served(stage: Stage, number: int, key: str) -> None:
    reader, writer = await asyncio.open_connection(stage.process.host, stage.process.port)
    try:
        while (status := await load.beat(reader, writer, key, f"newcomer-{number}")) == 503:
            await asyncio.sleep(RETRY_SECONDS)
    finally:
        writer.close()
    if status != 202:
        raise wrk.Void(f"a beat was answered {status}")


async def bare_verification(minted: Sequence[Minted], threads: int) -> float:
    """Seconds that argon2 alone takes for all of them, on that many threads."""
    return await asyncio.to_thread(_verify_all, minted, threads)


def _verify_all(minted: Sequence[Minted], threads: int) -> float:
    hasher = PasswordHasher()
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        verified = list(pool.map(lambda each: hasher.verify(each[0].digest, each[1]), minted))
    assert all(verified)
    return time.perf_counter() - began


async def flood(stage: Stage, ids: Collection[str], seconds: int) -> float:
    """Wrong keys a second, each a new one, with those public parts or with ones of nobody's."""
    known = stage.directory / "public-parts"
    known.write_text("".join(f"{each}\n" for each in ids))
    process = await asyncio.create_subprocess_exec(
        *f"wrk --threads 1 --connections {FLOODERS} --timeout 30s".split(),
        *("--duration", f"{seconds}s", "--script", str(SCRIPT)),
        f"http://{stage.process.host}:{stage.process.port}",
        *("--", str(known), str(random.getrandbits(30))),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    counted = json.loads(said.splitlines()[-1])
    if counted["failed"] or counted["refused"] != counted["requests"]:
        raise wrk.Void(f"void, some wrong keys were not refused:\n{said.decode()}")
    return float(counted["requests"] / counted["microseconds"] * 1_000_000)
