"""Reading a roster of 10,000, whole and in pages, as a share of the bare SQL and encoding.

One reader, one connection. What is bare runs in this process, with the store's own driver.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from http.client import HTTPConnection

from benchmarks import bare, population, wrk
from benchmarks.figures import Figure, at_least, ratios
from benchmarks.fleet import settle
from benchmarks.places import KINDS, Kind
from benchmarks.stage import Stage, stage
from benchmarks.suite import Bench
from collector.clock import SystemClock

TENANT = "large"
WORKERS, QUICK_WORKERS = 10_000, 2_000
PAGE = 500
# A window has so many readings; its figure is the least of them, because noise only adds.
READINGS = 5
GOAL = 0.7
_CURSOR = re.compile(rb'"next_cursor":"([^"]+)"')

Reading = Callable[[], Awaitable[int]]
# Seconds of one repetition: whole and in pages, over HTTP and bare.
Times = dict[str, float]


async def measure(bench: Bench) -> Sequence[Figure]:
    count = QUICK_WORKERS if bench.quick else WORKERS
    figures: list[Figure] = []
    for kind in KINDS:
        figures += await _measure(bench, kind, count)
    return figures


async def _measure(bench: Bench, kind: Kind, count: int) -> list[Figure]:
    async with stage(bench.where, kind) as running:
        ((key, plaintext),) = await population.mint([TENANT], ("read",))
        await population.admit(running.store, [(key, plaintext)])
        await running.start()
        over_http, store = Reader(running, plaintext), await bare.reader(running.url)
        readings: dict[str, Reading] = {
            "whole": lambda: asyncio.to_thread(over_http.whole),
            "walk": lambda: asyncio.to_thread(over_http.walk),
            "bare whole": lambda: bare.whole(store, TENANT),
            "bare walk": lambda: bare.walked(store, TENANT, PAGE),
        }
        try:
            times = [
                await _take_turns(bench, running, readings, count) for _ in range(bench.repetitions)
            ]
        finally:
            await store.close()
    return _figures(kind, times, count)


async def _take_turns(
    bench: Bench, running: Stage, readings: dict[str, Reading], count: int
) -> Times:
    now = SystemClock().now()
    await settle(running.store, ((TENANT, f"worker-{n:05}", now) for n in range(count)))
    # Without statistics PostgreSQL plans for some twenty workers, and sorts all of them for a page.
    bench.where.settle(running.url)
    least: Times = {}
    for _ in range(READINGS):
        for name, read in readings.items():
            began = time.perf_counter()
            found = await read()
            least[name] = min(least.get(name, 1e9), time.perf_counter() - began)
            if found != count:
                raise wrk.Void(f"void, {name}: {found} workers of {count}")
    bench.say(f"{running.kind}: {', '.join(f'{n} {s * 1000:.0f} ms' for n, s in least.items())}")
    return least


class Reader:
    """Asks the collector, again and again, on one connection."""

    def __init__(self, running: Stage, key: str) -> None:
        self._connection = HTTPConnection(running.process.host, running.process.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}"}

    def whole(self) -> int:
        return self._get("/v1/agents").count(b'"agent_id":')

    def walk(self) -> int:
        count, path = 0, f"/v1/agents?limit={PAGE}"
        while True:
            body = self._get(path)
            count += body.count(b'"agent_id":')
            # It stands after the workers: all the rest of a page need not be decoded for it.
            more = _CURSOR.search(body, max(0, len(body) - 1000))
            if more is None:
                return count
            path = f"/v1/agents?limit={PAGE}&cursor={more[1].decode()}"

    def _get(self, path: str) -> bytes:
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise wrk.Void(f"the roster was answered {answer.status}")
        return body


def _figures(kind: Kind, times: Sequence[Times], count: int) -> list[Figure]:
    def rate(name: str, of: str) -> list[float]:
        # Of times, so the other way round.
        return ratios([each[of] for each in times], [each[name] for each in times])

    return [
        Figure(
            f"{kind}: {count:,} workers whole, of bare", rate("whole", "bare whole"), at_least(GOAL)
        ),
        Figure(
            f"{kind}: in pages of {PAGE}, of bare in the same pages",
            rate("walk", "bare walk"),
            at_least(GOAL),
        ),
        Figure(f"{kind}: in pages, of bare whole", rate("walk", "bare whole")),
        Figure(f"{kind}: whole", [each["whole"] * 1000 for each in times], unit="ms"),
    ]
