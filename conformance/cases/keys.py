"""R12, R13: who comes in, and until when."""

from __future__ import annotations

import asyncio

from conformance import expect
from conformance.case import case
from conformance.trial import Trial
from conformance.wire import HEARTBEAT, ROSTER, address, body

REVOKED_WITHIN = 2.5
UNKNOWN = "vk_" + "A" * 32
# Every scope there is, for a key of our own.
EVERYTHING = ("ingest", "read", "admin")


@case(rule="R12", level="core")
async def without_a_key_nothing_is_written_or_read(t: Trial) -> None:
    name = t.name()
    for method, path in (("GET", ROSTER), ("POST", HEARTBEAT), ("GET", address(name))):
        answer = (await t.nobody.send(method, path)).was(401)
        challenge = answer.headers.get("www-authenticate", "")
        expect.true(challenge.startswith("Bearer"), "WWW-Authenticate: Bearer", challenge)


@case(rule="R12", level="core")
async def a_wrong_key_is_refused_however_it_is_wrong(t: Trial) -> None:
    real = t.target.keys.a
    for wrong in (UNKNOWN, real[:-1], real + "A", real.lower(), real[3:], f"x{real}", "vk_", ""):
        for scheme in ("Bearer", "Basic", ""):
            header = {"Authorization": f"{scheme} {wrong}".strip()}
            (await t.nobody.send("GET", ROSTER, headers=header)).was(401)


@case(rule="R12", level="core", framed=True)
async def a_key_counts_in_the_header_alone(t: Trial) -> None:
    key = t.target.keys.a
    (await t.nobody.send("GET", ROSTER, headers={"Cookie": f"key={key}; token={key}"})).was(401)
    (await t.nobody.post(body(t.name(), key=key, api_key=key))).was(401)
    (await t.nobody.send("GET", ROSTER, headers={"X-API-Key": key})).was(401)


@case(rule="R12", level="extended", needs="minting")
async def a_key_in_the_url_opens_nothing(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), "read")  # not somebody's: URLs are logged

    (await t.nobody.get(ROSTER, key=key, access_token=key)).was(401)


@case(rule="R12", level="extended", needs="ingest key")
async def a_key_that_may_only_beat_beats_and_reads_nothing(t: Trial) -> None:
    name = t.name()
    await t.ingest.beats(name)

    (await t.ingest.get(ROSTER)).was(403)
    (await t.ingest.get(address(name))).was(403)


@case(rule="R12", level="extended", needs="read key", framed=True)
async def a_key_that_may_only_read_reads_and_beats_nothing(t: Trial) -> None:
    name = t.name()
    (await t.read.get(ROSTER)).was(200)

    (await t.read.beat(name)).was(403)

    expect.equal(await t.a.workers(name), [], "rows after a beat without the scope")


@case(rule="R12", level="extended", needs=("removal", "ingest key", "read key"))
async def only_an_admin_key_removes(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    for caller in (t.ingest, t.read):
        (await caller.send("DELETE", address(name))).was(403)

    expect.equal(len(await t.a.workers(name)), 1, "rows")


@case(rule="R12", level="extended", needs=("events", "timeline", "summary", "gaps", "ingest key"))
async def every_reading_route_wants_the_scope_to_read(t: Trial) -> None:
    for path in ("/events", "/v1/events", "/v1/summary", "/v1/gaps", address("x", "/timeline")):
        (await t.ingest.get(path)).was(403)
        (await t.nobody.get(path)).was(401)


@case(rule="R12", level="extended", needs=("openorca", "ingest key"))
async def the_consoles_routes_want_the_scope_to_read(t: Trial) -> None:
    for path in ("/openorca/snapshot", "/openorca/events"):
        (await t.ingest.get(path)).was(403)
        (await t.nobody.get(path)).was(401)


@case(rule="R12", level="extended", needs="minting", framed=True)
async def no_scope_includes_another(t: Trial) -> None:
    tenant, name = t.name("t"), t.name()
    admin = t.caller(await t.control.mint(tenant, "admin"))

    (await admin.beat(name)).was(403)
    (await admin.get(ROSTER)).was(403)
    (await admin.send("DELETE", address(name))).was(404)


@case(rule="R13", level="extended", needs="minting")
async def a_new_key_works_at_once(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), *EVERYTHING)

    await t.caller(key).beats(t.name())


@case(rule="R13", level="extended", needs="minting", framed=True)
async def a_revoked_key_is_refused_within_2_seconds_though_it_was_just_used(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), *EVERYTHING)
    caller = t.caller(key)
    await caller.beats(t.name())

    await t.control.revoke(key)
    await asyncio.sleep(REVOKED_WITHIN)

    (await caller.beat(t.name())).refused(401, "unauthenticated")
    (await caller.get(ROSTER)).refused(401, "unauthenticated")


@case(rule="R13", level="extended", needs="minting")
async def a_revoked_key_leaves_its_tenants_other_keys_alone(t: Trial) -> None:
    tenant = t.name("t")
    gone, kept = [await t.control.mint(tenant, *EVERYTHING) for _ in range(2)]
    await t.caller(gone).beats(t.name())

    await t.control.revoke(gone)
    await asyncio.sleep(REVOKED_WITHIN)

    await t.caller(kept).beats(t.name())


@case(rule="R13", level="extended", needs=("minting", "events"))
async def a_stream_ends_when_its_key_is_revoked(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), *EVERYTHING)
    async with t.caller(key).stream() as stream:
        await stream.snapshot()
        await t.control.revoke(key)

        await stream.ended(2 * REVOKED_WITHIN)


@case(rule="R13", level="extended", needs=("minting", "openorca"))
async def a_consoles_stream_ends_when_its_key_is_revoked(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), *EVERYTHING)
    async with t.caller(key).stream("/openorca/events") as stream:
        await stream.next()
        await t.control.revoke(key)

        await stream.ended(2 * REVOKED_WITHIN)
