"""R27 to R30: removal, timelines, counts and the collectors' own gaps."""

from __future__ import annotations

from conformance import expect
from conformance.case import case
from conformance.streams import Json
from conformance.trial import Trial
from conformance.wire import address

DAY = 86_400
WRONG_SINCE = ("x", "-1", "nan", "1e3", "253402300800", "")


@case(rule="R27", level="extended", needs="removal")
async def a_removed_worker_is_gone_and_unknown(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)

    answer = (await t.a.send("DELETE", address(name))).was(204)

    expect.equal(answer.text, "", "the body")
    expect.equal(await t.a.workers(name), [], "rows")
    (await t.a.get(address(name))).refused(404, "not_found")
    (await t.a.send("DELETE", address(name))).refused(404, "not_found")


@case(rule="R27", level="extended", needs="removal")
async def the_next_beat_makes_a_removed_worker_anew(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    await t.a.send("DELETE", address(name))
    await t.sleep(1)
    accepted = await t.a.beats(name)

    expect.equal((await t.a.worker(name))["first_seen"], accepted["server_time"], "first_seen")


@case(rule="R27", level="extended", needs=("removal", "timeline"))
async def a_removed_workers_log_and_spells_stay(t: Trial) -> None:
    name = t.name()
    first = (await t.a.beats(name))["server_time"]
    await t.sleep(5)
    await t.a.send("DELETE", address(name))
    await t.a.beats(name)

    told = await _timeline(t, name)

    expect.fields(told["spells"][0], online_from=first, reason="removed")
    types = [line["type"] for line in told["transitions"]]
    expect.equal(types, ["worker.online", "worker.removed", "worker.online"], "transitions")


@case(rule="R27", level="extended", needs=("removal", "events"))
async def a_removal_is_logged_with_the_row_as_it_was(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", version="7")
    cursor = await t.a.cursor()
    await t.a.send("DELETE", address(name))

    (line,) = await t.a.lines(cursor, name)

    expect.fields(line, type="worker.removed", reason=None)
    expect.fields(line["worker"], agent_id=name, version="7")


@case(rule="R27", level="extended", needs=("minting", "gaps control"), phase="alone")
async def a_worker_silent_for_30_days_is_forgotten_and_one_that_beats_is_not(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    gone, kept = t.name(), t.name()
    await caller.beats(gone)
    await caller.beats(kept)

    await t.away(30 * DAY - 10)
    await caller.beats(kept)
    await t.control.retire()
    expect.equal(len(await caller.workers(gone, kept)), 2, "rows before 30 days")
    await t.away(20)
    await t.control.retire()

    found = [each["agent_id"] for each in await caller.workers(gone, kept)]
    expect.equal(found, [kept], "rows after 30 days")
    page, _ = await caller.events(last=1000)
    types = [line["type"] for line in page if line["worker"]["agent_id"] == gone]
    expect.equal(types[-1:], ["worker.removed"], "its last line")


@case(rule="R28", level="extended", needs=("timeline", "leave"))
async def a_timeline_has_the_workers_spells(t: Trial) -> None:
    name = t.name()
    first = (await t.a.beats(name))["server_time"]
    await t.sleep(10)
    left = (await t.a.beats(name, status="offline"))["server_time"]
    await t.sleep(5)
    back = (await t.a.beats(name))["server_time"]

    told = await _timeline(t, name)

    expect.equal(
        told["spells"],
        [
            {"online_from": first, "online_until": left, "reason": "left"},
            {"online_from": back, "online_until": None, "reason": None},
        ],
    )
    types = [line["type"] for line in told["transitions"]]
    expect.equal(types, ["worker.online", "worker.left", "worker.online"], "transitions")


@case(rule="R28", level="extended", needs=("timeline", "gaps control"), phase="alone")
async def a_spell_that_silence_ends_ends_45_seconds_after_the_last_beat(t: Trial) -> None:
    name = t.name()
    beat = (await t.a.beats(name))["server_time"]
    await t.control.jump(50_000_000)  # nobody has announced it yet

    (spell,) = (await _timeline(t, name))["spells"]

    expect.equal(spell, {"online_from": beat, "online_until": beat + 45, "reason": "lost"})
    await t.control.listen()
    await t.sleep(70)


@case(rule="R28", level="extended", needs=("timeline", "clock"))
async def uptime_is_the_share_of_the_time_that_counts(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    await t.sleep(30)
    await t.a.beats(name, status="offline")
    await t.sleep(30)

    for window in ("24h", "7d"):
        uptime = (await _timeline(t, name))["uptime"][window]
        expect.fields(uptime, online_seconds=30.0, counted_seconds=60.0, ratio=0.5)


@case(rule="R28", level="extended", needs=("timeline", "gaps control"), phase="alone")
async def a_gap_counts_neither_as_online_nor_as_offline(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    await t.sleep(10)
    await t.away(100)
    await t.a.beats(name)
    await t.sleep(10)

    told = await _timeline(t, name)

    uptime = told["uptime"]["24h"]
    expect.fields(uptime, gap_seconds=100.0, counted_seconds=20.0, ratio=1.0)
    expect.true(told["gaps"], "the gap", told["gaps"])
    await t.sleep(60)


@case(rule="R28", level="extended", needs="timeline")
async def a_timeline_begins_where_it_is_asked_to(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    await t.sleep(5)
    changed = (await t.a.beats(name, status="busy"))["server_time"]

    told = await _timeline(t, name, since=changed)

    expect.equal([line["type"] for line in told["transitions"]], ["worker.changed"], "lines")
    expect.equal(told["since"], changed, "since")
    (await t.a.get(address(t.name(), "/timeline"))).refused(404, "not_found")


@case(rule="R28", level="extended", needs="timeline")
async def a_wrong_since_is_refused(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    for since in WRONG_SINCE:
        answer = await t.a.get(address(name, "/timeline"), since=since)
        answer.refused(422, "invalid_field", "since")


@case(rule="R29", level="extended", needs=("summary", "leave"))
async def a_summary_counts_as_the_roster_shows(t: Trial) -> None:
    group = t.name("group")
    for name, status, sessions in zip(
        t.names(4), ("idle", "busy", "busy", "offline"), (0, 2, 3, 9), strict=True
    ):
        await t.a.beats(name, agent_name=group, status=status, active_sessions=sessions)

    expect.fields(
        await _group(t, group),
        workers=4,
        sessions=5,
        by_status={"idle": 1, "busy": 2, "offline": 1},
    )
    await t.sleep(46.5)
    expect.fields(
        await _group(t, group),
        workers=4,
        sessions=0,
        by_status={"idle": 0, "busy": 0, "offline": 4},
    )


@case(rule="R29", level="extended", needs="summary")
async def the_whole_is_the_sum_of_its_groups(t: Trial) -> None:
    await t.a.beats(t.name(), agent_name=t.name("group"), status="busy", active_sessions=2)

    said = (await t.a.get("/v1/summary")).was(200).json

    groups = said["by_agent_name"]
    expect.equal(said["workers"], sum(each["workers"] for each in groups), "workers")
    expect.equal(said["sessions"], sum(each["sessions"] for each in groups), "sessions")
    names = [each["agent_name"] for each in groups]
    expect.equal(names, sorted(names), "the groups' order")
    for status in ("idle", "busy", "offline"):
        total = sum(each["by_status"][status] for each in groups)
        expect.equal(said["by_status"][status], total, status)


@case(rule="R29", level="extended", needs="summary")
async def sessions_may_be_more_than_64_bits_hold(t: Trial) -> None:
    group, most = t.name("group"), 9_223_372_036_854_775_807
    for name in t.names(3):
        await t.a.beats(name, agent_name=group, active_sessions=most)

    expect.equal((await _group(t, group))["sessions"], 3 * most, "sessions")


@case(rule="R29", level="extended", needs="summary")
async def a_summary_takes_no_parameter(t: Trial) -> None:
    (await t.a.get("/v1/summary", project="x")).refused(422, "invalid_field", "project")


@case(rule="R30", level="extended", needs=("gaps", "gaps control"), phase="alone")
async def a_gap_is_listed_once_for_every_tenant(t: Trial) -> None:
    before = (await t.a.roster())["server_time"]
    await t.away(120)

    for caller in (t.a, t.b):
        found = (await caller.get("/v1/gaps", since=before)).was(200).json["gaps"]
        expect.equal(len(found), 1, "gaps")
        expect.equal(found[0]["seconds"], found[0]["ended_at"] - found[0]["began_at"], "seconds")
        expect.true(119 < found[0]["seconds"] < 126, "some 120 s", found[0])
    await t.sleep(61)


@case(rule="R30", level="extended", needs=("gaps", "gaps control"), phase="alone")
async def fifteen_seconds_are_no_gap(t: Trial) -> None:
    await t.control.listen()
    before = (await t.a.roster())["server_time"]
    await t.away(15)

    expect.equal((await t.a.get("/v1/gaps", since=before)).was(200).json["gaps"], [], "gaps")


@case(rule="R30", level="extended", needs="gaps")
async def gaps_take_since_alone(t: Trial) -> None:
    for since in WRONG_SINCE:
        (await t.a.get("/v1/gaps", since=since)).refused(422, "invalid_field", "since")
    (await t.a.get("/v1/gaps", until=5)).refused(422, "invalid_field", "until")
    said = (await t.a.get("/v1/gaps")).was(200).json
    expect.equal(set(said), {"gaps", "server_time"}, "fields")


async def _timeline(t: Trial, name: str, **query: float) -> Json:
    told: Json = (await t.a.get(address(name, "/timeline"), **query)).was(200).json
    return told


async def _group(t: Trial, name: str) -> Json:
    groups: list[Json] = (await t.a.get("/v1/summary")).was(200).json["by_agent_name"]
    (found,) = [each for each in groups if each["agent_name"] == name]
    return found
