"""R3, R15, R17: whose time counts."""

from __future__ import annotations

import asyncio
import time

from conformance import expect
from conformance.case import case
from conformance.clocks import SECOND
from conformance.streams import Json
from conformance.trial import Trial
from conformance.wire import body

# More than enough for a server to read a head that was sent.
READ_SECONDS = 0.3
FORGED = (0, -1, 1.5, 4_102_444_800, 253_402_300_799, "yesterday", None)


@case(rule="R3", level="core")
async def last_seen_is_the_servers_time_whatever_ts_says(t: Trial) -> None:
    for ts in FORGED:
        before, forged, after = t.names(3)
        await t.a.beats(before)
        await t.a.beats(forged, ts=ts)
        await t.a.beats(after)

        rows = [(await t.a.worker(name))["last_seen"] for name in (before, forged, after)]

        expect.true(
            rows == sorted(rows), f"a last_seen between its neighbours' with ts {ts!r}", rows
        )


@case(rule="R3", level="core")
async def a_ts_in_the_past_makes_no_worker_offline(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", ts=1.0)

    expect.equal((await t.a.worker(name))["status"], "busy")


@case(rule="R3", level="core")
async def a_ts_in_the_future_keeps_no_worker_alive(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", ts=time.time() + 86_400)

    await t.sleep(46.5)

    expect.equal((await t.a.worker(name))["status"], "offline")


@case(rule="R3", level="core")
async def ts_is_served_as_it_was_sent(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, ts=1_783_200_015.5)

    expect.equal((await t.a.worker(name)).get("ts"), 1_783_200_015.5, "ts")


@case(rule="R15", level="core")
async def the_answer_says_the_stamp_that_the_row_then_has(t: Trial) -> None:
    name = t.name()
    accepted = await t.a.beats(name)

    expect.fields(accepted, status="accepted", next_beat_seconds=15)
    expect.equal((await t.a.worker(name))["last_seen"], accepted.get("server_time"), "last_seen")


@case(rule="R15", level="extended", needs=("clock", "stalling"), phase="alone")
async def a_beats_stamp_is_that_of_its_arrival_however_long_it_waits(t: Trial) -> None:
    name, arrival = t.name(), (await t.a.roster())["server_time"]
    await t.control.store("stall")
    try:
        waiting = asyncio.create_task(t.a.beats(name))
        await asyncio.sleep(0.5)
        await t.control.jump(7 * SECOND)
    finally:
        await t.control.store("work")

    expect.equal((await waiting)["server_time"], arrival, "server_time")
    expect.equal((await t.a.worker(name))["last_seen"], arrival, "last_seen")
    await t.control.listen()


@case(rule="R17", level="extended", needs=("clock", "stalling"), phase="alone")
async def of_equal_stamps_in_one_commit_the_later_arrival_is_stored(t: Trial) -> None:
    name = t.name()
    await t.control.store("stall")
    try:
        waiting = [asyncio.create_task(t.a.beat(t.name()))]
        for sessions in (1, 2, 3):
            await asyncio.sleep(0.3)
            beat = t.a.beat(name, status="busy", active_sessions=sessions)
            waiting.append(asyncio.create_task(beat))
        await asyncio.sleep(0.3)
    finally:
        await t.control.store("work")

    expect.equal([(await each).status for each in waiting], [202] * 4, "answers")
    expect.equal((await t.a.worker(name))["active_sessions"], 3, "sessions")


@case(rule="R15", level="extended", needs=("clock", "sockets"), phase="alone")
async def a_beats_stamp_is_that_of_its_head_however_late_its_body_comes(t: Trial) -> None:
    await t.a.beats(t.name())
    for more in (0, 1):
        arrival = (await t.a.roster())["server_time"]
        requests = [t.a.request(body(name)) for name in t.names(1 + more)]
        (head, content), rest = requests[0], [part for each in requests[1:] for part in each]
        async with t.a.line() as line:
            await line.send(head)
            await asyncio.sleep(READ_SECONDS)
            await t.sleep(7)
            await line.send(b"".join((content, *rest)))
            answers = [(await line.answer("a late body")).was(202).json for _ in requests]

        stamps = [answer["server_time"] for answer in answers]
        expect.equal(stamps, [arrival, arrival + 7][: 1 + more], "server_time")


@case(rule="R15", level="core")
async def a_workers_own_times_are_kept_to_the_microsecond(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, started_at=1_783_200_000.1234564, ts=1_783_200_015.1234566)

    expect.fields(await t.a.worker(name), started_at=1783200000.123456, ts=1783200015.123457)


@case(rule="R15", level="core")
async def ages_are_those_of_the_rosters_own_moment(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    await t.sleep(3)

    roster = await t.a.roster()

    (row,) = [each for each in roster["workers"] if each["agent_id"] == name]
    age = round(roster["server_time"] - row["last_seen"], 6)
    expect.equal(round(row["age_seconds"], 6), age, "age_seconds")
    expect.true(age >= 3, "an age of at least 3 s", age)


@case(rule="R17", level="extended", needs="clock")
async def a_beat_with_an_equal_stamp_counts(t: Trial) -> None:
    name = t.name()
    first = await t.a.beats(name, status="idle")
    second = await t.a.beats(name, status="busy", active_sessions=4)

    expect.equal(second["server_time"], first["server_time"], "the second stamp")
    expect.fields(await t.a.worker(name), status="busy", active_sessions=4)


@case(rule="R17", level="extended", needs="clock", phase="alone")
async def a_late_beat_is_accepted_and_changes_nothing(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=2, version="2", project="p", ts=2)
    row = await t.a.worker(name)

    await t.control.jump(-4 * SECOND)
    accepted = await t.a.beat(name, status="idle", active_sessions=9, version="1", ts=1)
    await t.control.jump(4 * SECOND)

    accepted.was(202)
    expect.equal(_still(await t.a.worker(name)), _still(row))


@case(rule="R17", level="extended", needs="clock", phase="alone")
async def a_late_leave_changes_nothing(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=2)

    await t.control.jump(-4 * SECOND)
    await t.a.beats(name, status="offline")
    await t.control.jump(4 * SECOND)

    expect.fields(await t.a.worker(name), status="busy", active_sessions=2)


@case(rule="R17", level="extended", needs=("clock", "events"), phase="alone")
async def a_late_beat_is_no_line_of_the_log(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy")
    cursor = await t.a.cursor()

    await t.control.jump(-4 * SECOND)
    await t.a.beats(name, status="idle")
    await t.control.jump(4 * SECOND)

    expect.equal(await t.a.lines(cursor, name), [], "lines of a late beat")


@case(rule="R17", level="extended", needs="clock", phase="alone")
async def a_stored_stamp_far_ahead_is_overwritten(t: Trial) -> None:
    name = t.name()
    await t.control.jump(10 * SECOND)
    await t.a.beats(name, status="busy")
    await t.control.jump(-10 * SECOND)

    accepted = await t.a.beats(name, status="idle")

    row = await t.a.worker(name)
    expect.fields(row, status="idle", last_seen=accepted["server_time"])
    await t.sleep(10)


@case(rule="R17", level="extended", needs="clock", phase="alone")
async def a_stored_stamp_a_little_ahead_stays(t: Trial) -> None:
    name = t.name()
    await t.control.jump(5 * SECOND)
    ahead = await t.a.beats(name, status="busy")
    await t.control.jump(-5 * SECOND)

    await t.a.beats(name, status="idle")

    row = await t.a.worker(name)
    expect.fields(row, status="busy", last_seen=ahead["server_time"], age_seconds=0)
    await t.sleep(5)


def _still(row: Json) -> Json:
    """All but what passes with time."""
    return {name: value for name, value in row.items() if name != "age_seconds"}
