"""R36, R37: what consoles ask for besides, and the browsers that they run in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from conformance import expect
from conformance.answers import Answer
from conformance.case import case
from conformance.streams import Json
from conformance.trial import Trial
from conformance.wire import ROSTER, Caller, address, body

SESSIONS = "/v1/sessions"
ENDED_WITHIN = 2.5
# Every scope there is, for a key of our own.
EVERYTHING = ("ingest", "read", "admin")

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


# R37: browsers


@dataclass(frozen=True, slots=True)
class Browser:
    """Somebody who signed in, at a page of the target's own origin."""

    caller: Caller
    origin: str
    session: Json

    async def send(self, method: str, path: str, **given: Any) -> Answer:
        headers = {"Origin": self.origin} | given.pop("headers", {})
        return await self.caller.send(method, path, headers=headers, **given)

    async def get(self, path: str) -> Answer:
        return await self.caller.get(path)


def cookie_name(target: SplitResult) -> str:
    """What a session's cookie is called there; a scheme's own port is in no `Host`."""
    own = {"http": 80, "https": 443}.get(target.scheme)
    named = target.port not in (None, own)
    return f"presence_session_{target.port}" if named else "presence_session"


async def signed_in(t: Trial, key: str) -> Browser:
    answer = (await t.caller(key).send("POST", SESSIONS)).was(201)
    cookie, _, _ = answer.headers.get("set-cookie", "").partition(";")
    url = urlsplit(t.target.url)
    name = cookie_name(url)
    expect.true(cookie.startswith(f"{name}="), f"a cookie called {name}", cookie)
    return Browser(replace(t.nobody, cookie=cookie), f"{url.scheme}://{url.netloc}", answer.json)


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def a_browser_signs_in_with_a_key_and_reads_with_its_cookie(t: Trial) -> None:
    tenant, name = t.name("t"), t.name()
    key = await t.control.mint(tenant, *EVERYTHING)
    await t.caller(key).beats(name)

    browser = await signed_in(t, key)

    read = (await browser.get(ROSTER)).was(200).json
    expect.equal([each["agent_id"] for each in read["workers"]], [name], "workers")
    told = (await browser.get(f"{SESSIONS}/current")).was(200).json
    expect.fields(told, tenant=tenant, key_id=key[3:11], scopes=list(EVERYTHING), current=True)
    expect.equal(told["id"], browser.session["id"], "the session")


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def a_sessions_cookie_is_for_its_origin_and_out_of_a_pages_reach(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), "read")

    answer = (await t.caller(key).send("POST", SESSIONS)).was(201)

    said = [each.strip().lower() for each in answer.headers["set-cookie"].split(";")]
    for attribute in ("httponly", "samesite=strict", "path=/"):
        expect.true(attribute in said, attribute, answer.headers["set-cookie"])
    is_https = t.target.url.startswith("https:")
    expect.equal("secure" in said, is_https, "Secure")
    token = said[0].removeprefix("session=")
    expect.true(token not in answer.text.lower(), "no token in the body", answer.text)


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def a_session_does_what_its_key_may_and_no_more(t: Trial) -> None:
    tenant, name = t.name("t"), t.name()
    admin = await signed_in(t, await t.control.mint(tenant, "read", "admin"))
    reader = await signed_in(t, await t.control.mint(tenant, "read"))

    (await admin.get("/v1/keys")).was(200)
    (await admin.send("DELETE", address(name))).refused(404, "not_found")
    (await reader.get("/v1/keys")).refused(403, "missing_scope")
    (await reader.send("DELETE", address(name))).refused(403, "missing_scope")


@case(rule="R37", level="extended", needs=("sessions", "minting"), framed=True)
async def a_cookie_opens_no_heartbeat_and_no_other_session(t: Trial) -> None:
    browser = await signed_in(t, await t.control.mint(t.name("t"), *EVERYTHING))
    name = t.name()

    beat = await browser.caller.post(body(name), headers={"Origin": browser.origin})

    beat.refused(401, "unauthenticated")
    (await browser.send("POST", SESSIONS)).refused(401, "unauthenticated")
    read = (await browser.get(ROSTER)).was(200).json
    expect.equal(read["workers"], [], "workers")


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def a_cookie_changes_nothing_for_a_page_of_another_origin(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), *EVERYTHING)
    name, browser = t.name(), await signed_in(t, key)
    await t.caller(key).beats(name)
    own = browser.origin
    other_scheme = own.replace("://", "s://")

    for origin in ("https://evil.example", "null", "", f"{own}1", f"{own}.evil", other_scheme):
        asked = await browser.send("DELETE", address(name), headers={"Origin": origin})
        asked.refused(403, "foreign_origin")
    for site in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        asked = await browser.caller.send("DELETE", address(name), headers=site)
        asked.refused(403, "foreign_origin")

    (await browser.send("GET", ROSTER, headers={"Origin": "https://evil.example"})).was(200)
    said = {"Sec-Fetch-Site": "same-origin"}
    (await browser.caller.send("DELETE", address(name), headers=said)).was(204)


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def a_key_that_is_sent_counts_before_the_cookie(t: Trial) -> None:
    browser = await signed_in(t, await t.control.mint(t.name("t"), *EVERYTHING))
    other = await t.control.mint(t.name("t"), "ingest")

    sent = {"Authorization": f"Bearer {other}"}
    (await browser.send("GET", ROSTER, headers=sent)).refused(403, "missing_scope")
    wrong = {"Authorization": "Bearer vk_wrong"}
    (await browser.send("GET", ROSTER, headers=wrong)).refused(401, "unauthenticated")


@case(rule="R37", level="extended", needs=("sessions", "events", "minting"))
async def signing_out_ends_the_session_and_its_streams(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), *EVERYTHING)
    gone, kept = await signed_in(t, key), await signed_in(t, key)

    async with gone.caller.stream() as stream:
        await stream.snapshot()
        out = (await gone.send("DELETE", f"{SESSIONS}/current")).was(204)
        await stream.ended(2 * ENDED_WITHIN)
    await asyncio.sleep(ENDED_WITHIN)

    said = out.headers.get("set-cookie", "").lower().replace(" ", "")
    expect.true("max-age=0" in said, "a cookie that is cleared", said)
    (await gone.get(ROSTER)).refused(401, "unauthenticated")
    (await gone.get(f"{SESSIONS}/current")).refused(401, "unauthenticated")
    (await kept.get(ROSTER)).was(200)


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def a_revoked_keys_sessions_end_within_2_seconds(t: Trial) -> None:
    key = await t.control.mint(t.name("t"), *EVERYTHING)
    browser = await signed_in(t, key)
    (await browser.get(ROSTER)).was(200)

    await t.control.revoke(key)
    await asyncio.sleep(ENDED_WITHIN)

    (await browser.get(ROSTER)).refused(401, "unauthenticated")
    (await browser.get(f"{SESSIONS}/current")).refused(401, "unauthenticated")


@case(rule="R37", level="extended", needs=("sessions", "minting", "clock"))
async def a_session_lasts_a_week_and_never_longer_than_its_key(t: Trial) -> None:
    tenant = t.name("t")
    admin = t.caller(await t.control.mint(tenant, *EVERYTHING))
    short = {"scopes": ["read"], "expires_in_seconds": 100}
    brief = (await admin.send("POST", "/v1/keys", json=short)).was(201).json

    long, cut = await signed_in(t, admin.key or ""), await signed_in(t, brief["key"])

    lasts = long.session["expires_at"] - long.session["created_at"]
    expect.equal(lasts, 7 * 86400.0, "seconds that it lasts")
    expect.equal(cut.session["expires_at"], brief["expires_at"], "its end")
    await t.sleep(100)
    (await cut.get(ROSTER)).refused(401, "unauthenticated")
    (await long.get(ROSTER)).was(200)


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def a_session_reads_nothing_of_another_tenant(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    browser = await signed_in(t, await t.control.mint(t.name("t"), *EVERYTHING))

    expect.equal((await browser.get(ROSTER)).was(200).json["workers"], [], "workers")
    (await browser.get(address(name))).refused(404, "not_found")
    (await browser.send("DELETE", address(name))).refused(404, "not_found")


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def a_keys_sessions_are_listed_and_ended_by_that_key_alone(t: Trial) -> None:
    tenant = t.name("t")
    key, same_tenants, strangers = [
        await t.control.mint(each, *EVERYTHING) for each in (tenant, tenant, t.name("t"))
    ]
    first, second = await signed_in(t, key), await signed_in(t, key)
    path = f"{SESSIONS}/{first.session['id']}"

    listed = (await second.get(SESSIONS)).was(200).json["sessions"]
    current = {each["id"]: each["current"] for each in listed}
    expect.equal(
        current, {first.session["id"]: False, second.session["id"]: True}, "sessions of the key"
    )
    for other in (same_tenants, strangers):
        expect.equal((await t.caller(other).get(SESSIONS)).was(200).json["sessions"], [], "others'")
        (await t.caller(other).send("DELETE", path)).refused(404, "not_found")
    (await first.get(ROSTER)).was(200)

    (await second.send("DELETE", path)).was(204)
    (await second.send("DELETE", path)).refused(404, "not_found")
    (await first.get(ROSTER)).refused(401, "unauthenticated")


@case(rule="R37", level="extended", needs=("sessions", "minting"))
async def with_a_key_alone_there_is_no_current_session(t: Trial) -> None:
    caller = t.caller(await t.control.mint(t.name("t"), "read"))

    (await caller.get(f"{SESSIONS}/current")).refused(401, "unauthenticated")
    (await t.nobody.get(f"{SESSIONS}/current")).refused(401, "unauthenticated")
    name = cookie_name(urlsplit(t.target.url))
    for wrong in ("x", "A" * 43, caller.key):
        asked = await t.nobody.send("GET", ROSTER, headers={"Cookie": f"{name}={wrong}"})
        asked.refused(401, "unauthenticated")
