"""R18 to R21: reading the fleet, whole, in pages, in part, and one by one."""

from __future__ import annotations

from conformance import expect
from conformance.case import case
from conformance.streams import Json
from conformance.trial import Trial
from conformance.wire import ABSENT, ROSTER, address

SENT: Json = {
    "agent_name": "reception",
    "status": "busy",
    "active_sessions": 4,
    "version": "1.2.3",
    "project": "support",
    "region": "eu",
    "host": "host-1",
    "started_at": 1_783_200_000.25,
    "ts": 1_783_200_015.5,
    "dispatch_name": "inbound",
    "memory_rss_bytes": 412_800_000,
    "memory_total_bytes": 8_000_000_000,
}
DERIVED = {"agent_id", "reason", "memory_pct", "cpu_pct", "first_seen", "last_seen", "age_seconds"}
BAD_NUMBERS = ("0", "-1", "x", "1.5", "10001", "")
PAGE = 7


@case(rule="R18", level="core")
async def a_worker_is_served_as_it_said(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, **SENT, cpu_pct=12.34567)

    row = await t.a.worker(name)

    expect.fields(row, **SENT)
    expect.fields(row, agent_id=name, reason="alive", memory_pct=5.2, cpu_pct=12.346)
    expect.equal(row["conflict"], False, "conflict")


@case(rule="R18", level="core")
async def every_field_is_there_and_null_where_nothing_was_sent(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, ts=ABSENT)

    row = await t.a.worker(name)

    missing = ({*SENT, "conflict"} | DERIVED) - set(row)
    expect.equal(missing, set(), "missing fields")
    unsent = set(SENT) - {"agent_name", "status", "active_sessions"}
    expect.equal({row[field] for field in unsent}, {None}, "values of what was not sent")
    expect.fields(row, memory_pct=None, cpu_pct=None, active_sessions=0)


@case(rule="R18", level="core")
async def a_newer_beat_replaces_all_that_the_older_one_said(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, **SENT, cpu_pct=50)
    await t.a.beats(name, agent_name="other", status="idle", ts=ABSENT)

    row = await t.a.worker(name)

    expect.fields(row, agent_name="other", status="idle", active_sessions=0, version=None)
    expect.fields(row, project=None, host=None, cpu_pct=None, memory_pct=None, ts=None)


@case(rule="R18", level="core")
async def the_roster_is_newest_first_and_then_by_id(t: Trial) -> None:
    stem = t.name("order")
    ends = ("b", "a", "B", "é", "z", "\uff5e", "😀", "-", "aa")
    ids = [f"{stem}{end}" for end in ends]
    for agent_id in ids[:5]:
        await t.a.beats(agent_id)
    await t.sleep(1)
    for agent_id in ids[5:]:
        await t.a.beats(agent_id)

    found = [(-each["last_seen"], each["agent_id"]) for each in await t.a.workers(*ids)]

    expect.equal(found, sorted(found), "(−last_seen, agent_id)")
    expect.equal(len(found), len(ids), "workers")


@case(rule="R18", level="core")
async def the_roster_says_when_it_was_read_and_that_it_is_whole(t: Trial) -> None:
    accepted = await t.a.beats(t.name())

    roster = await t.a.roster()

    expect.equal(set(roster), {"workers", "server_time", "next_cursor", "recent_gap"}, "fields")
    expect.true(
        roster["server_time"] >= accepted["server_time"],
        f"a server_time of at least {accepted['server_time']}",
        roster["server_time"],
    )
    expect.equal(roster["next_cursor"], None, "next_cursor of the whole roster")


@case(rule="R18", level="core")
async def first_seen_never_changes_and_last_seen_does(t: Trial) -> None:
    name = t.name()
    first = (await t.a.beats(name))["server_time"]
    await t.sleep(2)
    second = (await t.a.beats(name, status="busy"))["server_time"]

    expect.fields(await t.a.worker(name), first_seen=first, last_seen=second)


@case(rule="R18", level="core")
async def a_percentage_of_memory_needs_both_figures(t: Trial) -> None:
    for rss, total, expected in ((1, 3, 33.3), (0, 5, None), (5, 0, None), (5, None, None)):
        name = t.name()
        await t.a.beats(name, memory_rss_bytes=rss, memory_total_bytes=total)

        expect.equal((await t.a.worker(name))["memory_pct"], expected, f"{rss} of {total}")


@case(rule="R18", level="core")
async def a_lost_worker_is_lost_and_not_left(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    await t.sleep(46.5)

    expect.fields(await t.a.worker(name), status="offline", reason="lost")


@case(rule="R19", level="extended", needs=("paging", "filters"))
async def a_walk_shows_everybody_once_while_others_beat(t: Trial) -> None:
    group, names = t.name("group"), t.names(30)
    for name in names:
        await t.a.beats(name, agent_name=group)
    seen: list[str] = []
    cursor: str | None = None
    while cursor is not None or not seen:
        place = {} if cursor is None else {"cursor": cursor}
        page = await t.a.roster(limit=PAGE, agent_name=group, **place)
        expect.true(0 < len(page["workers"]) <= PAGE, f"1 to {PAGE}", len(page["workers"]))
        seen += [each["agent_id"] for each in page["workers"]]
        cursor = page["next_cursor"]
        await _stir(t, group, names, seen)

    expect.equal(sorted(seen), sorted(names))


async def _stir(t: Trial, group: str, names: list[str], seen: list[str]) -> None:
    """Move last_seen of some that were shown and some that were not, and add a newcomer."""
    unseen = [name for name in names if name not in seen]
    for name in (*seen[-2:], *unseen[:2], *unseen[-2:]):
        await t.a.beats(name, agent_name=group, status="busy")
    await t.sleep(1)
    await t.a.beats(t.name("newcomer"), agent_name=group)


@case(rule="R19", level="extended", needs=("paging", "filters"))
async def pages_are_ordered_by_what_never_changes(t: Trial) -> None:
    group = t.name("group")
    for turn in range(3):
        for name in t.names(4):
            await t.a.beats(name, agent_name=group)
        await t.sleep(1 + turn)

    rows = await t.a.workers(limit=100, agent_name=group)

    order = [(each["first_seen"], each["agent_id"]) for each in rows]
    expect.equal(order, sorted(order, reverse=True), "(first_seen, agent_id)")
    expect.equal(len(order), 12, "workers")


@case(rule="R19", level="extended", needs=("paging", "filters"))
async def the_last_page_has_no_cursor(t: Trial) -> None:
    group = t.name("group")
    for name in t.names(4):
        await t.a.beats(name, agent_name=group)

    whole = await t.a.roster(limit=4, agent_name=group)
    part = await t.a.roster(limit=3, agent_name=group)

    expect.equal(whole["next_cursor"], None, "the cursor after all of them")
    expect.true(part["next_cursor"], "a cursor where one is left", part["next_cursor"])


@case(rule="R19", level="extended", needs="paging")
async def a_wrong_limit_or_cursor_is_refused(t: Trial) -> None:
    for limit in BAD_NUMBERS:
        (await t.a.get(ROSTER, limit=limit)).refused(422, "invalid_field", "limit")
    for cursor in ("no cursor", "%00", "é"):
        answer = await t.a.get(ROSTER, limit=5, cursor=cursor)
        answer.refused(422, "invalid_field", "cursor")


@case(rule="R19", level="extended", needs=("paging", "filters"))
async def a_cursor_needs_a_limit(t: Trial) -> None:
    group = t.name("group")
    for name in t.names(2):
        await t.a.beats(name, agent_name=group)
    cursor = (await t.a.roster(limit=1, agent_name=group))["next_cursor"]

    (await t.a.get(ROSTER, cursor=cursor)).refused(422, "invalid_field")


@case(rule="R20", level="extended", needs="filters")
async def each_filter_keeps_exactly_its_value(t: Trial) -> None:
    value = t.name("Value")
    kept, other = t.name(), t.name()
    for field in ("agent_name", "project", "region"):
        await t.a.beats(kept, **{field: value})
        await t.a.beats(other, **{field: value.lower()})

        found = [each["agent_id"] for each in await t.a.workers(**{field: value})]

        expect.equal(found, [kept], f"found by {field}")


@case(rule="R20", level="extended", needs="filters")
async def filters_combine_by_and(t: Trial) -> None:
    group, both, one = t.name("group"), t.name(), t.name()
    await t.a.beats(both, agent_name=group, project=group, status="busy")
    await t.a.beats(one, agent_name=group, status="busy")

    found = await t.a.workers(agent_name=group, project=group, status="busy")

    expect.equal([each["agent_id"] for each in found], [both])


@case(rule="R20", level="extended", needs=("filters", "leave"))
async def a_status_is_the_readers_and_several_mean_any(t: Trial) -> None:
    group, idle, busy, left = t.name("group"), t.name(), t.name(), t.name()
    await t.a.beats(idle, agent_name=group, status="idle")
    await t.a.beats(busy, agent_name=group, status="busy")
    await t.a.beats(left, agent_name=group, status="offline")

    async def found(*statuses: str) -> set[str]:
        rows = await t.a.workers(agent_name=group, status=list(statuses))
        return {each["agent_id"] for each in rows}

    expect.equal(await found("idle"), {idle}, "idle")
    expect.equal(await found("idle", "busy"), {idle, busy}, "idle or busy")
    expect.equal(await found("offline"), {left}, "offline")
    await t.sleep(46.5)
    expect.equal(await found("offline"), {idle, busy, left}, "offline once they are lost")
    expect.equal(await found("busy"), set(), "busy once they are lost")


@case(rule="R20", level="extended", needs=("filters", "clock"))
async def the_filter_and_the_row_agree_to_the_microsecond(t: Trial) -> None:
    group, name = t.name("group"), t.name()
    await t.a.beats(name, agent_name=group, status="busy")

    async def found(status: str) -> list[str]:
        return [each["status"] for each in await t.a.workers(agent_name=group, status=status)]

    await t.sleep(45)
    expect.equal((await found("busy"), await found("offline")), (["busy"], []), "at 45 s")
    await t.sleep(0.000001)
    expect.equal((await found("busy"), await found("offline")), ([], ["offline"]), "past it")


@case(rule="R20", level="extended", needs="filters")
async def seen_within_counts_back_from_now(t: Trial) -> None:
    group, old, young = t.name("group"), t.name(), t.name()
    await t.a.beats(old, agent_name=group)
    await t.sleep(20)
    await t.a.beats(young, agent_name=group)

    async def found(seconds: float) -> set[str]:
        rows = await t.a.workers(agent_name=group, seen_within=seconds)
        return {each["agent_id"] for each in rows}

    expect.equal(await found(10.5), {young}, "within 10.5 s")
    expect.equal(await found(60), {old, young}, "within 60 s")


@case(rule="R19", level="extended", needs=("paging", "filters", "clock"))
async def seen_within_counts_from_the_walks_first_page(t: Trial) -> None:
    group, names = t.name("group"), t.names(4)
    for name in names:
        await t.a.beats(name, agent_name=group)
    first = await t.a.roster(limit=2, agent_name=group, seen_within=10)
    await t.sleep(20)

    rest = await t.a.roster(limit=10, agent_name=group, seen_within=10, cursor=first["next_cursor"])

    seen = [each["agent_id"] for page in (first, rest) for each in page["workers"]]
    expect.equal(sorted(seen), sorted(names), "the whole walk")


@case(rule="R20", level="extended", needs="filters")
async def a_wrong_parameter_is_refused_and_never_ignored(t: Trial) -> None:
    wrong: list[tuple[str, Json]] = [
        ("colour", {"colour": "green"}),
        ("status", {"status": "purple"}),
        ("status", {"status": "IDLE"}),
        ("agent_name", {"agent_name": ["a", "b"]}),
        ("agent_name", {"agent_name": ""}),
        ("project", {"project": "x" * 257}),
        ("region", {"region": "a\x00b"}),
        *(("seen_within", {"seen_within": bad}) for bad in ("x", "-1", "nan", "inf", "1e3", "")),
    ]
    for field, query in wrong:
        (await t.a.get(ROSTER, **query)).refused(422, "invalid_field", field)


@case(rule="R21", level="core")
async def one_worker_is_the_rosters_own_row(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, **SENT)

    alone = (await t.a.get(address(name))).was(200).json

    row = await t.a.worker(name)
    expect.equal(alone | {"age_seconds": 0}, row | {"age_seconds": 0})


@case(rule="R21", level="core")
async def any_id_has_an_address(t: Trial) -> None:
    stem = t.name("id")
    for end in ("a/b", "a%2Fb", "a?b=c#d", "a b", "é😀", "'\"", "..", "a\\b", "+", "%00", "a;b"):
        agent_id = f"{stem}{end}"
        await t.a.beats(agent_id, version=end)

        found = (await t.a.get(address(agent_id))).was(200).json

        expect.fields(found, agent_id=agent_id, version=end)


@case(rule="R21", level="core")
async def a_slash_in_the_path_is_another_path(t: Trial) -> None:
    name = t.name()
    await t.a.beats(f"{name}/b")

    (await t.a.get(f"{ROSTER}/{name}/b")).refused(404, "not_found")


@case(rule="R21", level="extended", needs="minting")
async def a_worker_may_be_called_heartbeat(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    await caller.beats("heartbeat")

    found = (await caller.get(address("heartbeat"))).was(200).json
    expect.equal(found["agent_id"], "heartbeat")


@case(rule="R21", level="core")
async def a_segment_that_is_no_text_is_not_found(t: Trial) -> None:
    (await t.a.get(f"{ROSTER}/%ff%fe")).refused(404, "not_found")


@case(rule="R21", level="core")
async def a_lost_worker_is_lost_by_its_own_address_too(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=3)
    await t.sleep(46.5)

    found = (await t.a.get(address(name))).was(200).json

    expect.fields(found, status="offline", reason="lost", active_sessions=0)
