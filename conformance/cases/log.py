"""R22 to R24: what of a worker's life is a change, and what only looks like one."""

from __future__ import annotations

from conformance import expect
from conformance.case import case
from conformance.streams import Json
from conformance.trial import Trial

TTL = 45
COMPARED: list[tuple[str, Json]] = [
    ("status", {"status": "busy"}),
    ("active_sessions", {"active_sessions": 1}),
    ("agent_name", {"agent_name": "another"}),
    ("project", {"project": "p"}),
    ("region", {"region": "r"}),
    ("version", {"version": "v"}),
    ("host", {"host": "h"}),
    ("dispatch_name", {"dispatch_name": "d"}),
    ("started_at", {"started_at": 2.0}),
]
UNCOMPARED: list[Json] = [
    {"ts": 5.0},
    {"memory_rss_bytes": 5},
    {"memory_total_bytes": 9},
    {"cpu_pct": 1.5},
    {"tenant_id": "x"},
    {"unknown": 1},
]


@case(rule="R22", level="extended", needs="conflict")
async def a_lower_start_than_the_beat_befores_is_a_second_process(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, started_at=2000.0, version="new")
    expect.equal((await t.a.worker(name))["conflict"], False, "conflict after one process")
    await t.a.beats(name, started_at=1000.0, version="old")

    expect.fields(await t.a.worker(name), conflict=True, started_at=2000.0, version="old")


@case(rule="R22", level="extended", needs="conflict")
async def a_restart_is_no_conflict(t: Trial) -> None:
    name = t.name()
    for started_at in (1000.0, 2000.0, None, 2000.0, 3000.0):
        await t.a.beats(name, started_at=started_at)

        expect.equal((await t.a.worker(name))["conflict"], False, f"after {started_at}")


@case(rule="R22", level="extended", needs="conflict")
async def a_conflict_ends_by_itself_45_seconds_after_the_last_such_beat(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, started_at=2000.0)
    await t.a.beats(name, started_at=1000.0)
    for _ in range(3):
        await t.sleep(13)
        await t.a.beats(name, started_at=1000.0)
        expect.equal((await t.a.worker(name))["conflict"], True, "conflict within 45 s")

    await t.sleep(8)
    await t.a.beats(name, started_at=1000.0)

    expect.fields(await t.a.worker(name), conflict=False, started_at=1000.0)


@case(rule="R22", level="extended", needs=("conflict", "leave"))
async def a_leave_of_an_older_process_is_no_conflict(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, started_at=2000.0)
    await t.a.beats(name, started_at=1000.0, status="offline")

    expect.equal((await t.a.worker(name))["conflict"], False, "conflict")


@case(rule="R23", level="extended", needs="events")
async def a_first_beat_is_online(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    accepted = await t.a.beats(name, status="busy")

    (line,) = await _lines(t, cursor, name, "worker.online")

    expect.fields(line, at=accepted["server_time"], reason=None)
    expect.fields(line["worker"], agent_id=name, status="busy", reason="alive")


@case(rule="R23", level="extended", needs="events")
async def each_compared_field_is_a_change(t: Trial) -> None:
    for field, change in COMPARED:
        name = t.name()
        await t.a.beats(name, started_at=1.0)
        cursor = await t.a.cursor()
        await t.a.beats(name, **{"started_at": 1.0} | change)

        (line,) = await _lines(t, cursor, name, "worker.changed")

        expect.equal(line["worker"][field], change[field], field)


@case(rule="R23", level="extended", needs="events")
async def a_beat_that_changes_nothing_is_no_line(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=2, version="1", started_at=1.0)
    cursor = await t.a.cursor()
    for change in ({}, *UNCOMPARED):
        same: Json = {"status": "busy", "active_sessions": 2, "version": "1", "started_at": 1.0}
        await t.a.beats(name, **same | change)

        expect.equal(await t.a.lines(cursor, name), [], f"lines after {change}")


@case(rule="R23", level="extended", needs=("events", "leave"))
async def a_leave_is_left_once_and_the_return_is_online(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    for status in ("busy", "offline", "offline", "idle"):
        await t.a.beats(name, status=status)

    lines = await _lines(t, cursor, name, "worker.online", "worker.left", "worker.online")

    expect.fields(lines[1]["worker"], status="offline", reason="left", active_sessions=0)
    expect.equal([line["reason"] for line in lines], [None, None, None], "reasons")


@case(rule="R23", level="extended", needs=("events", "conflict"))
async def a_conflict_is_logged_once_and_hides_what_both_processes_say_of_themselves(
    t: Trial,
) -> None:
    name = t.name()
    await t.a.beats(name, started_at=2000.0, version="2", host="x")
    cursor = await t.a.cursor()
    for _ in range(3):
        await t.a.beats(name, started_at=1000.0, version="1", host="y")
        await t.a.beats(name, started_at=2000.0, version="2", host="x")

    await _lines(t, cursor, name, "worker.conflict")


@case(rule="R23", level="extended", needs="events")
async def numbers_have_no_holes_and_follow_the_beats(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    for sessions in range(20):
        await t.a.beats(name, status="busy", active_sessions=sessions)

    page: list[Json] = [{}]
    numbers, told = list[int](), list[int]()
    first, after = int(cursor.rpartition(".")[2]) + 1, cursor
    while page:
        page, after = await t.a.events(after)
        numbers += [int(line["cursor"].rpartition(".")[2]) for line in page]
        of_it = [line["worker"] for line in page if line["worker"]["agent_id"] == name]
        told += [worker["active_sessions"] for worker in of_it]

    expect.equal(numbers, list(range(first, first + len(numbers))), "numbers")
    expect.equal(told, list(range(20)), "sessions, in the order of the beats")


@case(rule="R23", level="extended", needs=("events", "minting"))
async def a_tenants_log_begins_at_1(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    await caller.beats(t.name())

    page, cursor = await caller.events(last=1000)

    expect.equal([line["type"] for line in page], ["worker.online"], "lines")
    expect.true(cursor.endswith(".1"), "a cursor that ends with .1", cursor)


@case(rule="R24", level="extended", needs=("events", "clock"))
async def a_silence_is_announced_once_with_the_moment_that_it_began_to_count(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    accepted = await t.a.beats(name, status="busy", active_sessions=3)

    await t.sleep(TTL + 2)
    await t.sleep(10)

    lines = await _lines(t, cursor, name, "worker.online", "worker.offline")
    expect.fields(lines[1], at=accepted["server_time"] + TTL, reason="lost")
    expect.fields(lines[1]["worker"], status="offline", reason="lost", active_sessions=0)


@case(rule="R24", level="extended", needs="events")
async def a_silence_is_streamed_within_2_seconds(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    async with t.a.stream(last=await t.a.cursor()) as stream:
        await t.sleep(TTL + 2.5)

        line, _ = await stream.until(name, "worker.offline", seconds=2)

    expect.equal(line.data["reason"], "lost", "reason")


@case(rule="R24", level="extended", needs=("events", "leave", "clock"))
async def a_worker_that_left_is_never_announced_lost(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    await t.a.beats(name)
    await t.a.beats(name, status="offline")

    await t.sleep(TTL + 10)

    await _lines(t, cursor, name, "worker.online", "worker.left")


@case(rule="R24", level="extended", needs=("events", "clock", "gaps control"), phase="alone")
async def a_beat_that_ends_an_unannounced_silence_tells_of_it_first(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    await t.a.beats(name, status="busy")
    await t.sleep(40)
    await t.control.jump(6_000_000)
    await t.a.beats(name, status="idle")

    lines = await _lines(t, cursor, name, "worker.online", "worker.offline", "worker.online")

    expect.fields(lines[1]["worker"], status="offline")
    expect.fields(lines[2]["worker"], status="idle")
    await t.control.listen()


@case(rule="R24", level="extended", needs=("events", "gaps", "gaps control"), phase="alone")
async def a_worker_that_lived_through_a_gap_is_not_announced_lost(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    await t.a.beats(name, status="busy")

    await t.away(600)
    await t.a.beats(name, status="busy")

    lines = await _lines(t, cursor, name, "worker.online", "worker.changed")
    expect.equal(lines[1]["reason"], "collector_gap", "reason")
    await t.sleep(70)


@case(rule="R24", level="extended", needs=("events", "gaps", "gaps control"), phase="alone")
async def a_worker_that_died_in_a_gap_is_announced_once_it_was_listened_for(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    await t.a.beats(name, status="busy")
    await t.sleep(10)

    await t.away(600)
    await _lines(t, cursor, name, "worker.online")
    await t.sleep(34)
    await _lines(t, cursor, name, "worker.online")
    await t.sleep(3)

    await _lines(t, cursor, name, "worker.online", "worker.offline")
    await t.sleep(60)


@case(rule="R24", level="extended", needs=("events", "gaps", "gaps control"), phase="alone")
async def nobody_is_announced_lost_within_20_seconds_of_a_gap(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    await t.a.beats(name, status="busy")
    await t.sleep(40)

    await t.away(60)
    await t.sleep(19)
    await _lines(t, cursor, name, "worker.online")
    await t.sleep(3)

    await _lines(t, cursor, name, "worker.online", "worker.offline")
    await t.sleep(60)


@case(rule="R24", level="extended", needs=("gaps", "gaps control"), phase="alone")
async def the_roster_goes_by_the_45_seconds_alone_and_tells_of_the_gap(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy")
    began = (await t.a.roster())["server_time"]

    await t.away(100)

    roster = await t.a.roster()
    (row,) = [each for each in roster["workers"] if each["agent_id"] == name]
    expect.fields(row, status="offline", reason="lost")
    gap = roster["recent_gap"] or {}
    expect.true(gap.get("began_at", 0) <= began < gap.get("ended_at", 0), "the gap", gap)
    await t.sleep(61)
    expect.equal((await t.a.roster())["recent_gap"], None, "recent_gap a minute later")


async def _lines(t: Trial, cursor: str, name: str, *types: str) -> list[Json]:
    """The worker's lines since then, which are of exactly these types."""
    lines = await t.a.lines(cursor, name)
    expect.equal([line["type"] for line in lines], list(types), f"lines of {name}")
    return lines
