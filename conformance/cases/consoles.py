"""R36: what consoles ask for besides."""

from __future__ import annotations

from conformance import expect
from conformance.case import case
from conformance.trial import Trial

WRONG = (
    {"steps": "0"},
    {"steps": "289"},
    {"steps": "1.5"},
    {"step_seconds": "0"},
    {"step_seconds": "3601"},
    {"since": "1"},
)


@case(rule="R36", level="extended", needs=("presence", "leave", "minting", "clock"))
async def presence_counts_a_worker_in_every_step_that_its_spells_touch(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    first, second = t.names(2)
    await caller.beats(first)
    await t.sleep(10)
    await caller.beats(first, status="offline")
    await caller.beats(second)
    await t.sleep(10)
    await caller.beats(first)
    await t.sleep(10)

    said = (await caller.get("/v1/presence", steps=4, step_seconds=10)).was(200).json

    # Both the end of the one spell and the beginning of the next lie in the step between.
    expect.equal(said["online"], [0, 1, 2, 2], "online")
    expect.equal(said["step_seconds"], 10, "step_seconds")
    expect.equal(said["server_time"] - said["since"], 40.0, "the time between its ends")


@case(rule="R36", level="extended", needs=("presence", "minting", "clock"))
async def presence_ends_with_the_ttl_whoever_announced_it(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    await caller.beats(t.name())
    await t.sleep(100)

    said = (await caller.get("/v1/presence", steps=10, step_seconds=10)).was(200).json

    expect.equal(said["online"], [1, 1, 1, 1, 1, 0, 0, 0, 0, 0], "online")


@case(rule="R36", level="extended", needs="presence")
async def presence_is_of_the_last_hour_in_minutes(t: Trial) -> None:
    said = (await t.a.get("/v1/presence")).was(200).json

    expect.equal((len(said["online"]), said["step_seconds"]), (60, 60), "steps and their length")
    expect.true(isinstance(said["gaps"], list), "a list of gaps", said["gaps"])


@case(rule="R36", level="extended", needs="presence")
async def presence_refuses_what_it_does_not_know(t: Trial) -> None:
    for query in WRONG:
        (name,) = query
        (await t.a.get("/v1/presence", **query)).refused(422, "invalid_field", name)
