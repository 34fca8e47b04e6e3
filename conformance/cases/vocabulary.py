"""R6: idle, busy, offline."""

from __future__ import annotations

from conformance import expect
from conformance.case import case
from conformance.trial import Trial
from conformance.wire import ABSENT

WRONG = ("purple", "IDLE", "Busy", " idle", "idle ", "online", "left", "", None, 1, True, ["idle"])


@case(rule="R6", level="core", framed=True)
async def each_of_the_three_statuses_is_accepted_and_served(t: Trial) -> None:
    for status in ("idle", "busy", "offline"):
        name = t.name()
        await t.a.beats(name, status=status)

        expect.equal((await t.a.worker(name))["status"], status)


@case(rule="R6", level="core", framed=True)
async def any_other_status_is_refused_and_makes_no_worker(t: Trial) -> None:
    names = t.names(len(WRONG) + 1)
    for name, status in zip(names, (*WRONG, ABSENT), strict=True):
        answer = await t.a.beat(name, status=status)
        expect.equal(answer.status, 422, f"the answer to the status {status!r}")

    expect.equal(await t.a.workers(*names), [], "rows after wrong statuses")


@case(rule="R6", level="core", framed=True)
async def a_refused_status_leaves_the_worker_as_it_was(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=2)
    await t.a.beat(name, status="purple", active_sessions=9)

    expect.fields(await t.a.worker(name), status="busy", active_sessions=2)


@case(rule="R6", level="core", framed=True)
async def no_roster_has_another_word(t: Trial) -> None:
    for status in WRONG:
        await t.a.beat(t.name("word"), status=status)

    served = {str(each["status"]) for each in await t.a.workers()}

    expect.true(served <= {"idle", "busy", "offline"}, "idle, busy or offline", sorted(served))


@case(rule="R16", level="extended", needs="leave")
async def a_leave_makes_the_worker_offline_at_once(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=5)
    await t.a.beats(name, status="offline", active_sessions=5)

    expect.fields(await t.a.worker(name), status="offline", reason="left", active_sessions=0)


@case(rule="R16", level="extended", needs="leave")
async def a_worker_that_left_stays_left_and_is_never_lost(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy")
    await t.a.beats(name, status="offline")

    await t.sleep(60)

    expect.fields(await t.a.worker(name), status="offline", reason="left", active_sessions=0)


@case(rule="R16", level="extended", needs="leave")
async def a_leave_of_an_unknown_worker_makes_its_row(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="offline")

    expect.fields(await t.a.worker(name), status="offline", reason="left")


@case(rule="R16", level="extended", needs="leave")
async def the_next_beat_brings_a_worker_back(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="offline")
    await t.a.beats(name, status="busy", active_sessions=1)

    expect.fields(await t.a.worker(name), status="busy", reason="alive", active_sessions=1)
