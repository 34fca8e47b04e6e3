"""R31: the feed, as a stream and as a poll."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from conformance import expect
from conformance.case import case
from conformance.streams import Json
from conformance.trial import Trial
from conformance.wire import ROSTER, address

ROW = {
    "agent_id", "agent_name", "status", "reason", "active_sessions", "version", "project",
    "region", "host", "dispatch_name", "started_at", "ts", "first_seen", "last_seen",
    "memory_rss_bytes", "memory_total_bytes", "memory_pct", "cpu_pct", "conflict",
}  # fmt: skip
# What the launcher allows one tenant.
SUBSCRIBERS = 64
VITALS_SECONDS = 12


@case(rule="R31", level="extended", needs="events")
async def a_stream_begins_with_the_whole_roster(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=2)

    async with t.a.stream() as stream:
        workers, cursor = await stream.snapshot()

    (row,) = [each for each in workers if each["agent_id"] == name]
    expect.fields(row, status="busy", active_sessions=2, reason="alive")
    expect.equal(ROW - set(row), set(), "missing fields")
    expect.true("." in cursor, "a cursor", cursor)
    expect.equal(stream.retry, "2000", "retry")
    kind = stream.headers.get("content-type", "")
    expect.true(kind.startswith("text/event-stream"), "text/event-stream", kind)


@case(rule="R31", level="extended", needs=("events", "leave", "removal"))
async def every_change_follows_in_order(t: Trial) -> None:
    name = t.name()
    async with t.a.stream() as stream:
        await stream.snapshot()
        for status in ("idle", "busy", "offline", "idle"):
            await t.a.beats(name, status=status)
        await t.a.send("DELETE", address(name))

        types = await stream.types(name, last="worker.removed")

    expect.equal(
        types,
        ["worker.online", "worker.changed", "worker.left", "worker.online", "worker.removed"],
    )


@case(rule="R31", level="extended", needs="events")
async def a_frame_carries_its_cursor_as_its_id(t: Trial) -> None:
    name = t.name()
    async with t.a.stream() as stream:
        await stream.snapshot()
        await t.a.beats(name)
        frame, _ = await stream.until(name, "worker.online")

    expect.equal(frame.id, frame.data["cursor"], "the id")
    expect.equal(frame.data["type"], frame.event, "the type")
    expect.equal(set(frame.data), {"type", "cursor", "at", "reason", "worker"}, "fields")
    expect.equal(ROW - set(frame.data["worker"]), set(), "missing fields of the worker")


@case(rule="R31", level="extended", needs="events")
async def a_cursor_resumes_with_no_snapshot_no_gap_and_no_duplicate(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    for sessions in range(10):
        await t.a.beats(name, status="busy", active_sessions=sessions)
    seen: list[int] = []
    for _ in range(3):
        async with t.a.stream(last=cursor) as stream:
            while len(seen) < 10:
                frame, before = await stream.until(name, "worker.online", "worker.changed")
                expect.true(
                    "snapshot" not in [each.event for each in before], "no snapshot", before
                )
                seen.append(frame.data["worker"]["active_sessions"])
                cursor = str(frame.id)
                if len(seen) in (3, 7):
                    break  # come back from here

    expect.equal(seen, list(range(10)), "sessions, over three streams")


@case(rule="R31", level="extended", needs="events")
async def after_resumes_as_last_event_id_does(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    await t.a.beats(name)

    async with t.a.stream(after=cursor) as stream:
        _, before = await stream.until(name, "worker.online")

    expect.true("snapshot" not in [each.event for each in before], "no snapshot", before)


@case(rule="R31", level="extended", needs="events")
async def a_cursor_that_leads_nowhere_gets_a_snapshot(t: Trial) -> None:
    cursor = await t.a.cursor()
    epoch, _, number = cursor.rpartition(".")
    ahead = f"{epoch}.{int(number) + 1_000_000}"
    for wrong in ("rubbish", "", f"other.{number}", ahead, f"{epoch}.-1", f"{epoch}.x", epoch):
        async with t.a.stream(last=wrong) as stream:
            await stream.snapshot()


@case(rule="R31", level="extended", needs=("events", "pruning", "minting"), phase="alone")
async def a_cursor_whose_next_line_is_cut_off_gets_a_snapshot(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    names = t.names(6)
    for name in names:
        await caller.beats(name)
    epoch = (await caller.cursor()).rpartition(".")[0]

    await t.control.prune(2)

    async with caller.stream(last=f"{epoch}.3") as stream:
        workers, _ = await stream.snapshot()
    expect.equal(len(workers), 6, "workers of the snapshot")
    lines, _ = await caller.events(f"{epoch}.4")
    expect.equal([line["worker"]["agent_id"] for line in lines], names[4:], "lines still there")


@case(rule="R31", level="extended", needs=("events", "restart"), phase="alone")
async def a_cursor_resumes_on_another_process(t: Trial) -> None:
    name, cursor = t.name(), await t.a.cursor()
    await t.a.beats(name)

    await t.control.restart()

    async with t.a.stream(last=cursor) as stream:
        await t.a.beats(name, status="busy")
        types = await stream.types(name, last="worker.changed")
    expect.equal(types, ["worker.online", "worker.changed"])


@case(rule="R31", level="extended", needs=("events", "restart"), phase="alone")
async def a_restart_keeps_the_epoch(t: Trial) -> None:
    before = (await t.a.cursor()).rpartition(".")[0]
    await t.control.restart()

    expect.equal((await t.a.cursor()).rpartition(".")[0], before, "the epoch")


@case(rule="R31", level="extended", needs="events")
async def vitals_tell_who_beat_without_being_part_of_the_log(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, cpu_pct=10)
    async with t.a.stream(last=await t.a.cursor()) as stream:
        await t.a.beats(name, cpu_pct=55.5, memory_rss_bytes=1, memory_total_bytes=4)
        row: Json = {}
        async with expect.within(VITALS_SECONDS, "vitals with the newest figures"):
            while row.get("cpu_pct") != 55.5:
                frame = await stream.next(VITALS_SECONDS)
                if frame.event == "vitals":
                    expect.equal(frame.id, None, "the id of vitals")
                    rows = {each["agent_id"]: each for each in frame.data["workers"]}
                    row = rows.get(name, {})

    expect.fields(row, memory_pct=25.0, memory_rss_bytes=1, memory_total_bytes=4)
    expect.true("status" not in row, "figures alone", row)


@case(rule="R31", level="extended", needs="events")
async def a_filter_keeps_the_others_out_of_the_stream(t: Trial) -> None:
    group, mine, other = t.name("group"), t.name(), t.name()
    for field in ("agent_name", "project", "region"):
        async with t.a.stream(**{field: group}) as stream:
            await stream.snapshot()
            await t.a.beats(other, status="busy", **{field: "another"})
            await t.a.beats(mine, status="busy", **{field: group})
            _, before = await stream.until(mine, "worker.online", "worker.changed")
        told = {f.data["worker"]["agent_id"] for f in before if "worker" in f.data}
        expect.true(other not in told, f"only those with this {field}", told)


@case(rule="R31", level="extended", needs="events")
async def a_worker_that_changes_out_of_the_filter_is_told_of_no_more(t: Trial) -> None:
    group, name, other = t.name("group"), t.name(), t.name()
    await t.a.beats(name, project=group)
    async with t.a.stream(project=group) as stream:
        await stream.snapshot()
        await t.a.beats(name, project="elsewhere")
        await t.a.beats(other, project=group)
        _, before = await stream.until(other, "worker.online")

    told = [frame.about for frame in before]
    expect.true(name not in told, "nothing of a worker that matches no more", told)


@case(rule="R31", level="extended", needs="events")
async def a_filtered_snapshot_has_those_that_match(t: Trial) -> None:
    group, mine = t.name("group"), t.name()
    await t.a.beats(mine, project=group)
    await t.a.beats(t.name(), project="another")

    async with t.a.stream(project=group) as stream:
        workers, _ = await stream.snapshot()

    expect.equal([each["agent_id"] for each in workers], [mine])


@case(rule="R31", level="extended", needs=("events", "minting"))
async def a_large_snapshot_comes_in_chunks_of_500(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    names = t.names(501)
    for start in range(0, len(names), 100):
        await asyncio.gather(*map(caller.beats, names[start : start + 100]))

    async with caller.stream() as stream:
        first, second = await stream.next(), await stream.next()

    expect.equal([len(f.data["workers"]) for f in (first, second)], [500, 1], "workers")
    expect.equal([f.data["more"] for f in (first, second)], [True, False], "more")
    expect.true(first.id is None and second.id, "an id on the last alone", (first.id, second.id))


@case(rule="R31", level="extended", needs="events")
async def a_poll_begins_with_a_snapshot_and_goes_on_from_its_cursor(t: Trial) -> None:
    name = t.name()
    (snapshot, *_), cursor = await t.a.events()
    expect.equal(snapshot["type"], "snapshot", "the first event")

    await t.a.beats(name)

    lines = await t.a.lines(cursor, name)
    expect.equal([line["type"] for line in lines], ["worker.online"], "lines")


@case(rule="R31", level="extended", needs=("events", "minting"))
async def a_poll_waits_for_what_comes(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    name, cursor = t.name(), await caller.cursor()
    waiting = asyncio.create_task(caller.events(cursor, wait=15))
    await asyncio.sleep(0.3)
    expect.true(not waiting.done(), "no answer while nothing happens", waiting)
    await caller.beats(name)

    lines, _ = await waiting

    expect.equal([line["worker"]["agent_id"] for line in lines], [name])


@case(rule="R31", level="extended", needs=("events", "minting"))
async def a_poll_with_nothing_to_tell_gives_its_cursor_back(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    await caller.beats(t.name())
    cursor = await caller.cursor()

    expect.equal(await caller.events(cursor, wait=0.2), ([], cursor))


@case(rule="R31", level="extended", needs=("events", "minting"))
async def last_goes_back_that_many_lines(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    names = t.names(5)
    for name in names:
        await caller.beats(name)

    for last, expected in ((0, []), (2, names[3:]), (1000, names)):
        lines, _ = await caller.events(last=last)
        expect.equal([each["worker"]["agent_id"] for each in lines], expected, f"last={last}")


@case(rule="R31", level="extended", needs="events")
async def a_wrong_parameter_is_refused_on_both(t: Trial) -> None:
    for path in ("/events", "/v1/events"):
        (await t.a.get(path, colour="x")).refused(422, "invalid_field", "colour")
        (await t.a.get(path, project="x" * 257)).refused(422, "invalid_field", "project")
    for field, value in (("wait", "31"), ("wait", "x"), ("last", "1001"), ("last", "-1")):
        (await t.a.get("/v1/events", **{field: value})).refused(422, "invalid_field", field)


@case(rule="R31", level="extended", needs=("events", "minting"))
async def one_subscriber_too_many_is_told_to_come_back(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    async with AsyncExitStack() as opened:
        for _ in range(SUBSCRIBERS):
            await opened.enter_async_context(caller.stream())

        answer = (await caller.get("/v1/events")).refused(429, "too_many_subscribers")

        expect.equal(answer.headers.get("retry-after"), "10", "Retry-After")
        (await t.a.get("/v1/events")).was(200)
        (await caller.get(ROSTER)).was(200)
