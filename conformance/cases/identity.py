"""R2, R4: one row a worker."""

from __future__ import annotations

import asyncio

from conformance import expect
from conformance.case import case
from conformance.trial import Trial

AT_ONCE = 20


@case(rule="R2", level="core")
async def the_same_id_in_two_tenants_is_two_workers(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, version="1")
    await t.b.beats(name, version="2")

    expect.equal((await t.a.worker(name))["version"], "1")
    expect.equal((await t.b.worker(name))["version"], "2")


@case(rule="R2", level="core")
async def workers_that_share_a_name_are_workers_of_their_own(t: Trial) -> None:
    group, ids = t.name("group"), t.names(3)
    for agent_id in ids:
        await t.a.beats(agent_id, agent_name=group)

    found = [each["agent_id"] for each in await t.a.workers() if each["agent_name"] == group]

    expect.equal(sorted(found), sorted(ids))


@case(rule="R2", level="core")
async def a_worker_that_changes_its_name_stays_the_same(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, agent_name="before")
    await t.a.beats(name, agent_name="after")

    expect.equal((await t.a.worker(name))["agent_name"], "after")


@case(rule="R2", level="core")
async def ids_that_differ_in_case_or_in_accents_are_different_workers(t: Trial) -> None:
    stem = t.name("id")
    ids = [f"{stem}{end}" for end in ("-a", "-A", "-á", "-a\u0301", "-a ", "-ａ")]
    for n, agent_id in enumerate(ids):
        await t.a.beats(agent_id, active_sessions=n)

    found = {each["agent_id"]: each["active_sessions"] for each in await t.a.workers(*ids)}

    expect.equal(found, {agent_id: n for n, agent_id in enumerate(ids)})


@case(rule="R4", level="core")
async def first_beats_at_the_same_moment_make_one_row_and_none_fails(t: Trial) -> None:
    for name in t.names(10):
        answers = await asyncio.gather(*(t.a.beat(name) for _ in range(AT_ONCE)))

        expect.equal([each.status for each in answers], [202] * AT_ONCE, "answers")
        expect.equal(len(await t.a.workers(name)), 1, "rows")


@case(rule="R4", level="core")
async def first_beats_of_many_workers_at_once_make_a_row_each(t: Trial) -> None:
    names = t.names(50)
    answers = await asyncio.gather(*(t.a.beat(name) for name in names * 2))

    expect.equal({each.status for each in answers}, {202}, "answers")
    found = sorted(each["agent_id"] for each in await t.a.workers(*names))
    expect.equal(found, sorted(names), "rows")


@case(rule="R4", level="core")
async def later_beats_at_the_same_moment_leave_one_row_as_one_of_them_sent_it(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    sent = [("busy", n, f"v{n}") for n in range(AT_ONCE)]
    await asyncio.gather(
        *(t.a.beats(name, status=s, active_sessions=n, version=v) for s, n, v in sent)
    )

    row = await t.a.worker(name)

    seen = (row["status"], row["active_sessions"], row["version"])
    expect.true(seen in sent, "one of the beats, whole", seen)
