"""A process that hosts a producer, or none, and says as JSON what that costs it.

`python -m benchmarks.host none|ours|peer beats COUNT`, or `… turns SECONDS`. Any Python runs it,
also one that has nothing but the peer. What only a part of it needs is imported there, so that the
memory is the producer's.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES = {"ours": "benchmarks.our_producer", "peer": "benchmarks.peer_producer"}
FIRST_BEATS = 10
INTERVAL_SECONDS = 1.0
# Of one turn of the busy loop: some half a millisecond, so that a beat touches one turn in a few
# hundred.
ROUNDS = 10_000


class Hurry(Protocol):
    """A registered worker that need not wait between its beats."""

    def beat(self, times: int) -> None: ...


class Producer(Protocol):
    def hurry(self) -> Hurry: ...

    def start(self, interval: float) -> None:
        """Beat from now on; an event loop runs."""

    async def leave(self) -> None: ...


def beats(producer: Producer | None, count: int) -> Mapping[str, float]:
    """Memory after the first beats, and processor time of the others."""
    if producer is None:
        return {"resident_bytes": _resident_bytes(), "cpu_seconds": 0.0}
    worker = producer.hurry()
    worker.beat(FIRST_BEATS)
    resident, before = _resident_bytes(), time.process_time()
    worker.beat(count)
    return {"resident_bytes": resident, "cpu_seconds": time.process_time() - before}


async def turns(producer: Producer | None, seconds: float) -> Mapping[str, Mapping[str, float]]:
    """A busy loop's turns with the producer and without it, and while it starts."""
    starting, with_it, without = Turns(), Turns(), Turns()
    # In the middle of without: a machine that gets busier meanwhile does it to both alike.
    await without.take(seconds / 2)
    if producer is not None:
        producer.start(INTERVAL_SECONDS)
    await starting.take(INTERVAL_SECONDS)
    await with_it.take(seconds)
    if producer is not None:
        await producer.leave()
    await without.take(seconds / 2)
    return {
        "starting": starting.summary(),
        "with": with_it.summary(),
        "without": without.summary(),
    }


class Turns:
    """How long each turn of the loop took."""

    def __init__(self) -> None:
        self._lengths: list[float] = []
        self._cpu_seconds = 0.0

    async def take(self, seconds: float) -> None:
        import asyncio

        cpu = time.process_time()
        began = last = time.perf_counter()
        while last - began < seconds:
            _work()
            await asyncio.sleep(0)
            now = time.perf_counter()
            self._lengths.append(now - last)
            last = now
        self._cpu_seconds += time.process_time() - cpu

    def summary(self) -> Mapping[str, float]:
        lengths = sorted(self._lengths)
        return {
            "turns": len(lengths),
            "seconds": sum(lengths),
            "cpu_seconds": self._cpu_seconds,
            "p999_seconds": lengths[int(len(lengths) * 0.999)],
            "longest_seconds": lengths[-1],
        }


def _work() -> int:
    total = 0
    for n in range(ROUNDS):
        total += n
    return total


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - pathlib would be memory of the host
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _load(name: str) -> Any:
    if name == "none":
        return None
    from importlib import import_module

    return import_module(MODULES[name]).Producer()


def main(name: str, part: str, amount: str) -> None:
    found: Mapping[str, Any]
    if part == "beats":
        found = beats(_load(name), int(amount))
    else:
        import asyncio

        found = asyncio.run(turns(_load(name), float(amount)))
    import json

    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
