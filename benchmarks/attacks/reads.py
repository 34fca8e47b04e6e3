"""One tenant's reads, without manners: a short form of the chapter on neighbours."""

from __future__ import annotations

import asyncio

from benchmarks.besieged import Besieged
from benchmarks.neighbours import CROWDS, LEAD_SECONDS, settled
from benchmarks.readers import reading

# A reader is served, told to come back later, or told that there is no room.
EXPECTED = ("200", "429", "503")


async def neighbours(on: Besieged) -> None:
    """Each crowd for some seconds; the others' beats go on, and memory stays within its limit."""
    place = await settled(on.stage, on.scale.readers_workers)
    await place.gather()
    await on.stage.warm([place.key])
    for name in CROWDS:
        file = on.stage.directory / f"{on.process.port}.readers"
        seconds = LEAD_SECONDS + on.scale.read_seconds
        async with (
            on.others(seconds),
            reading(on.process.address, file, await place.crowd(name)) as readers,
        ):
            await asyncio.sleep(seconds)
        on.tried += sum(readers.answers.statuses.values())
        on.say(f"{name}: {readers}; peak {on.peak.bytes / 1e6:,.0f} MB")
        odd = {s: n for s, n in readers.answers.statuses.items() if s not in EXPECTED}
        on.fault("answers", f"{name}: {odd}", sum(odd.values()))
