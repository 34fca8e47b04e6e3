"""One tenant that reads without manners, and the others whose beats are measured beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks import crowd, population
from benchmarks.fleet import Fleet, muster, settle, strangers
from benchmarks.paced import Paced, paced
from benchmarks.readers import Crowd
from benchmarks.stage import Stage
from collector.clock import SystemClock

ATTACKER = "attacker"
WORKERS, QUICK_WORKERS = 20_000, 2_000
# The others: a small fleet that beats steadily, far below what a collector takes at most.
TENANTS, OTHERS, BEATS_A_SECOND = 10, 1_000, 300
# A client that comes back with a cursor stays this long, and comes back again.
RESUMED_SECONDS = 1.0

ROSTERS = "64 rosters"
STREAMS = "900 streams"
RESUMED = "900 streams resumed"
SNAPSHOTS = "64 snapshots"
METRICS = "16 metrics"
CROWDS: Mapping[str, Crowd] = {
    ROSTERS: Crowd("/v1/agents", 64),
    STREAMS: Crowd("/events", 900, keep_seconds=0),
    RESUMED: Crowd("/events", 900, keep_seconds=RESUMED_SECONDS),
    SNAPSHOTS: Crowd("/openorca/snapshot", 64),
    # Nobody needs a key for these.
    METRICS: Crowd("/metrics", 16),
}
# An attack is under way for so long before the others' beats are looked at.
LEAD_SECONDS = 1.5


@dataclass(frozen=True)
class Neighbourhood:
    """A collector with a large tenant and many small ones."""

    stage: Stage
    others: Fleet
    # The large tenant's.
    key: str
    workers: int

    async def begin(self) -> None:
        """The collector starts anew: what an attack has left to do is gone, with its memory."""
        await self.stage.kill()
        await self.stage.start()
        await self.stage.warm([*self.others.keys, self.key])
        await self.gather()

    async def gather(self) -> None:
        """Everybody is alive, because workers that fell silent meanwhile would be told of."""
        now = SystemClock().now()
        names = (f"worker-{n:05}" for n in range(self.workers))
        await settle(self.stage.store, ((ATTACKER, name, now) for name in names))
        await muster(self.stage.store, self.others)

    async def crowd(self, name: str) -> Crowd:
        """Return the readers of that name, with what they need to be let in."""
        asked = CROWDS[name]
        if name == METRICS:
            return asked
        if name == RESUMED:
            place = await self.stage.store.position(ATTACKER)
            asked = replace(asked, cursor=f"{place.epoch}.{place.head}")
        return replace(asked, key=self.key)

    async def beats(self, seconds: float) -> Paced:
        """The others' beats, from a process of their own."""
        process = self.stage.process
        file = self.stage.target(self.others).fleet
        return await paced(process.host, process.port, file, BEATS_A_SECOND, seconds)


async def settled(stage: Stage, workers: int = WORKERS) -> Neighbourhood:
    """The tenants and their keys, in a store that nobody serves yet."""
    minted = await population.mint([ATTACKER], ("ingest", "read"))
    await population.admit(stage.store, minted)
    others = await crowd.admit(stage.store, strangers(TENANTS, OTHERS))
    return Neighbourhood(stage, others, minted[0][1], workers)
