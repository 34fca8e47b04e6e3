"""R5: who counts as offline, and from when."""

from __future__ import annotations

import time

from conformance import expect
from conformance.case import case
from conformance.trial import Trial


@case(rule="R5", level="core")
async def a_worker_is_alive_until_45_seconds_and_offline_past_them(t: Trial) -> None:
    name, sent = t.name(), time.monotonic()
    await t.a.beats(name, status="busy", active_sessions=3)
    waited = time.monotonic() - sent  # the 45 began some time before a slow answer came

    await t.sleep(44 - waited)
    expect.fields(await t.a.worker(name), status="busy", active_sessions=3)

    await t.sleep(2.5 + waited)
    expect.equal((await t.a.worker(name))["status"], "offline")


@case(rule="R5", level="extended", needs="clock")
async def at_exactly_45_seconds_it_is_alive_and_a_microsecond_later_it_is_not(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=3)

    await t.sleep(45)
    expect.fields(await t.a.worker(name), status="busy", active_sessions=3)

    await t.sleep(0.000001)
    expect.fields(await t.a.worker(name), status="offline", active_sessions=0)


@case(rule="R5", level="core")
async def a_worker_past_its_time_has_no_sessions(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=7)

    await t.sleep(46.5)

    expect.equal((await t.a.worker(name))["active_sessions"], 0)


@case(rule="R5", level="core")
async def every_beat_starts_the_45_seconds_anew(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="idle")
    await t.sleep(30)
    await t.a.beats(name, status="idle")

    await t.sleep(30)

    expect.equal((await t.a.worker(name))["status"], "idle")


@case(rule="R5", level="core")
async def a_lost_worker_that_beats_again_is_back(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", active_sessions=2)
    await t.sleep(46.5)
    await t.a.beats(name, status="busy", active_sessions=1)

    expect.fields(await t.a.worker(name), status="busy", active_sessions=1)


@case(rule="R5", level="core", phase="last")
async def every_roster_that_was_read_agrees_with_its_own_server_time(t: Trial) -> None:
    await t.a.beats(t.name())
    await t.a.roster()

    expect.true(t.reads.judged, "a roster that says when it was read", "none")
    expect.equal(t.reads.wrong, [], "workers with the wrong status")
