"""The most memory that a collector has had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from benchmarks import usage

EVERY_SECONDS = 0.02
MB = 1_000_000
# No attack may bring a collector to this: `deploy/` gives it some 500 MB.
LIMIT_BYTES = 300 * MB


class Peak:
    """The kernel keeps the peak of each process; what a family had at once is sampled."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.bytes = 0

    @property
    def is_too_high(self) -> bool:
        return self.bytes > LIMIT_BYTES

    def look(self) -> None:
        """Take note of what there is now. A process that has ended leaves the peak as it was."""
        with suppress(FileNotFoundError, ProcessLookupError, StopIteration):
            together = usage.of_family(usage.resident_bytes, self._pid)
            self.bytes = max(self.bytes, together, usage.peak_bytes(self._pid))


@asynccontextmanager
async def watched(pid: int) -> AsyncIterator[Peak]:
    """Look all the while that the block takes."""
    peak = Peak(pid)

    async def look_for_ever() -> None:
        while True:
            peak.look()
            await asyncio.sleep(EVERY_SECONDS)

    looking = asyncio.create_task(look_for_ever())
    try:
        yield peak
    finally:
        looking.cancel()
        peak.look()
