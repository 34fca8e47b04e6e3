"""Browsers over real HTTP: signing in, what the cookie opens and what not, and every end of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from collector import keys
from collector import sessions as verbs
from collector.retention import Retention
from collector.sessions import browser_of, digest_of
from collector.settings import Settings
from collector.store.open import store_for
from collector.store.protocol import Store
from collector.store.schema import metadata
from collector.values import SECOND, Session
from contract.vocabulary import MAX_BROWSER
from tests.factories import at, body
from tests.fleet import Fleet, TestClock
from tests.test_doors import GUARDED, SENT, STREAMS, check_problem
from tests.test_events import Stream
from tests.test_store_keys import key

SESSIONS, CURRENT = "/v1/sessions", "/v1/sessions/current"
DAY_SECONDS = 86_400
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
COOKIE_DOORS = [
    (method, path, scope)
    for method, path, scope in GUARDED
    if scope != "ingest" and (method, path) != ("POST", SESSIONS)
]


async def sign_in(fleet: Fleet, **headers: str) -> httpx2.Response:
    answer = await fleet.http.post(SESSIONS, headers=await fleet.headers() | headers)
    assert answer.status_code == 201, answer.text
    return answer


def attributes(answer: httpx2.Response) -> dict[str, str]:
    """What the answer's one cookie says, by lower-case name."""
    (cookie,) = answer.headers.get_list("set-cookie")
    pairs = (each.strip().partition("=") for each in cookie.split(";"))
    return {name.lower(): value for name, _, value in pairs}


def cookie_of(answer: httpx2.Response) -> dict[str, str]:
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def cookie_name(fleet: Fleet) -> str:
    return f"presence_session_{fleet.url.rpartition(':')[2]}"


async def opens(fleet: Fleet, browser: dict[str, str]) -> bool:
    answer = await fleet.http.get("/v1/agents", headers=browser)
    assert answer.status_code in (200, 401), answer.text
    return answer.status_code == 200


async def everything_stored(store: Store) -> str:
    def read(conn: Any) -> str:
        return str([conn.execute(table.select()).all() for table in metadata.tables.values()])

    text: str = await store._read(read)  # type: ignore[attr-defined]
    return text


@asynccontextmanager
async def following(fleet: Fleet, browser: dict[str, str]) -> AsyncIterator[Stream]:
    async with fleet.http.stream("GET", "/events", headers=browser) as answer:
        assert answer.status_code == 200
        stream = Stream(answer)
        assert (await stream.next())["event"] == "snapshot"
        yield stream


async def has_ended(stream: Stream) -> bool:
    """Within the time that a frame may take; what comes before the end is passed over."""
    try:
        while True:
            await stream.next(past=("vitals",))
    except EOFError:
        return True


# Signing in


async def test_a_browser_signs_in_and_is_told_who_it_is(fleet: Fleet) -> None:
    answer = await sign_in(fleet, **{"User-Agent": FIREFOX})

    told, now = answer.json(), fleet.clock.now() / SECOND
    assert told.pop("id")
    assert told == {
        "tenant": "acme",
        "key_id": (await fleet.key())[3:11],
        "key_name": None,
        "scopes": ["ingest", "read", "admin"],
        "browser": "Firefox on Linux",
        "created_at": now,
        "expires_at": now + 7 * DAY_SECONDS,
        "current": True,
        "server_time": now,
    }
    said = attributes(answer)
    assert (said["path"], said["samesite"].lower()) == ("/", "strict")
    assert said["max-age"] == str(7 * DAY_SECONDS)
    assert "httponly" in said
    assert "domain" not in said


@pytest.mark.parametrize(("scheme", "is_secure"), [("https", True), ("http", False)])
async def test_the_cookie_is_secure_exactly_over_https(
    fleet: Fleet, scheme: str, is_secure: bool
) -> None:
    answer = await sign_in(fleet, **{"X-Forwarded-Proto": scheme})

    assert ("secure" in attributes(answer)) == is_secure


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("presence.example", "presence_session"),
        ("127.0.0.1:8080", "presence_session_8080"),
        ("[::1]", "presence_session"),
        ("[::1]:9000", "presence_session_9000"),
    ],
)
async def test_a_collector_on_another_port_of_the_host_has_another_cookie(
    fleet: Fleet, host: str, name: str
) -> None:
    signed_in = await sign_in(fleet, Host=host)
    browser = cookie_of(signed_in)

    assert name in attributes(signed_in)
    assert await opens(fleet, browser | {"Host": host})
    assert not await opens(fleet, browser | {"Host": "127.0.0.1:1"})


async def test_an_origin_behind_tls_is_the_one_that_the_browser_sees(fleet: Fleet) -> None:
    cookie = (await fleet.sign_in())["Cookie"]
    own = fleet.url.replace("http:", "https:")
    sent = {"Cookie": cookie, "X-Forwarded-Proto": "https"}

    refused = await fleet.http.delete(CURRENT, headers=sent | {"Origin": fleet.url})
    done = await fleet.http.delete(CURRENT, headers=sent | {"Origin": own})

    check_problem(refused, 403, "foreign_origin")
    assert done.status_code == 204
    assert "secure" in attributes(done)


async def test_a_jar_that_keeps_the_cookie_is_all_that_a_browser_needs(fleet: Fleet) -> None:
    async with httpx2.AsyncClient(base_url=fleet.url, trust_env=False) as browser:
        await browser.post(SESSIONS, headers=await fleet.headers())
        there = await browser.get(CURRENT)
        out = await browser.delete(CURRENT, headers={"Origin": fleet.url})

        assert there.json()["current"] is True
        assert out.status_code == 204
        assert not browser.cookies
        check_problem(await browser.get(CURRENT), 401, "unauthenticated")


async def test_the_token_is_nowhere_but_in_the_cookie(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = await sign_in(fleet)
    token = attributes(answer)[cookie_name(fleet)]
    browser = {"Cookie": f"{cookie_name(fleet)}={token}"}
    said = [answer] + [await fleet.http.get(path, headers=browser) for path in (SESSIONS, CURRENT)]
    said.append(await fleet.http.delete(CURRENT, headers=browser))

    stored = await everything_stored(fleet.store)

    assert len(token) == 43
    assert token not in stored
    assert digest_of(token) in stored
    assert all(token not in each.text for each in said)
    ours = [line for line in caplog.records if not line.name.startswith(("httpx", "httpcore"))]
    logged = "\n".join(line.getMessage() for line in ours)
    assert f"GET {CURRENT}" in logged
    assert token not in logged


async def test_a_key_without_the_scope_to_read_signs_nobody_in(fleet: Fleet) -> None:
    bearer = {"Authorization": f"Bearer {await fleet.key(scopes=['ingest', 'admin'])}"}

    check_problem(await fleet.http.post(SESSIONS, headers=bearer), 403, "missing_scope")


async def test_a_cookie_opens_no_second_session(fleet: Fleet) -> None:
    browser = await fleet.sign_in()

    check_problem(await fleet.http.post(SESSIONS, headers=browser), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("user_agent", "said"),
    [
        (FIREFOX, "Firefox on Linux"),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Chrome/141.0 Safari/5",
            "Chrome on macOS",
        ),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) Version/18 Safari/605", "Safari on macOS"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/141.0 Safari/537 Edg/141.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) CriOS/141", "Chrome on iOS"),
        ("Mozilla/5.0 (Linux; Android 15) Chrome/141 Mobile Safari/537", "Chrome on Android"),
        ("curl/8.9.1", "curl"),
        ("", "A browser"),
        ("<script>" * 1000, "A browser"),
    ],
)
def test_a_browser_is_told_in_words_of_our_own(user_agent: str, said: str) -> None:
    assert browser_of(user_agent) == said


def test_no_browsers_name_is_longer_than_the_contract_says() -> None:
    every = (
        browser_of(browser + system)
        for browser, _ in verbs._BROWSERS
        for system, _ in verbs._SYSTEMS
    )

    assert max(map(len, every)) <= MAX_BROWSER


# What the cookie opens


@pytest.mark.parametrize(("method", "path", "scope"), COOKIE_DOORS)
async def test_every_door_but_the_heartbeats_opens_to_the_cookie(
    fleet: Fleet, method: str, path: str, scope: str
) -> None:
    await fleet.beat("w")
    browser = await fleet.sign_in()
    (own,) = await fleet.store.sessions_of((await fleet.key())[3:11], now=fleet.clock.now())
    other, _ = await keys.create(fleet.store, "acme", ["read"], now=fleet.clock.now())
    address = path.format(agent_id="w", key_id=other.id, session_id=own.id)
    if (method, path) == ("DELETE", "/v1/agents"):
        address += "?project=nobodys"

    foreign = browser | {"Origin": "https://evil.example"}
    if method != "GET":
        refused = await fleet.http.request(method, address, headers=foreign, json=SENT.get(path))
        check_problem(refused, 403, "foreign_origin")
    knock = fleet.http.stream(method, address, headers=browser, json=SENT.get(path))
    async with asyncio.timeout(20), knock as answer:
        if path not in STREAMS:
            await answer.aread()

    assert answer.is_success, scope


async def test_the_heartbeat_never_looks_at_a_cookie(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = await fleet.sign_in()
    monkeypatch.setattr(verbs.Sessions, "identify", None)

    refused = await fleet.http.post("/v1/agents/heartbeat", headers=browser, json=body("w"))
    beside = browser | await fleet.headers()
    taken = await fleet.http.post("/v1/agents/heartbeat", headers=beside, json=body("w"))

    check_problem(refused, 401, "unauthenticated")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert taken.status_code == 202


async def test_what_a_session_does_is_its_keys_act(fleet: Fleet) -> None:
    await fleet.beat("w")
    browser = await fleet.sign_in()

    await fleet.http.delete("/v1/agents/w", headers=browser)

    acts = (await fleet.get("/v1/audit")).json()["acts"]
    own = (await fleet.key())[3:11]
    assert [(act["action"], act["actor"]) for act in acts] == [
        ("worker.removed", own),
        ("key.created", "operator"),
    ]


async def test_the_use_of_a_session_is_the_use_of_its_key(fleet: Fleet) -> None:
    browser = await fleet.sign_in()
    await fleet.app.state.parts.keyring.note_used()
    fleet.clock.move(600)

    assert await opens(fleet, browser)
    await fleet.app.state.parts.keyring.note_used()

    found = await fleet.store.find_key((await fleet.key())[3:11])
    assert found is not None
    assert found.last_used_at == fleet.clock.now()


async def test_the_many_requests_of_one_page_cost_one_look_up(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, looked_up = await fleet.sign_in(), 0
    real = type(fleet.store).find_session

    async def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal looked_up
        looked_up += 1
        return await real(*args, **kwargs)

    monkeypatch.setattr(type(fleet.store), "find_session", counting)
    monkeypatch.setattr(verbs, "BELIEVED_SECONDS", 60.0)

    assert all(await asyncio.gather(*(opens(fleet, browser) for _ in range(20))))
    assert looked_up == 1


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "A" * 42 + "é", "A" * 5000])
async def test_a_token_that_nobody_has_opens_nothing(fleet: Fleet, token: str) -> None:
    headers = [(b"cookie", f"{cookie_name(fleet)}={token}".encode())]

    answer = await fleet.http.get("/v1/agents", headers=headers)

    check_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_more_look_ups_than_may_wait_are_told_to_come_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "MAX_WAITING", 0)

    answer = await fleet.http.get(
        "/v1/agents", headers={"Cookie": f"{cookie_name(fleet)}={'A' * 43}"}
    )

    check_problem(answer, 503, "overloaded")
    assert answer.headers["retry-after"] == "1"


# Ends


async def test_of_twenty_sign_outs_at_once_one_is_done(fleet: Fleet) -> None:
    browser = await fleet.sign_in()

    answers = await asyncio.gather(
        *(fleet.http.delete(CURRENT, headers=browser) for _ in range(20))
    )

    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(204), statuses.count(401)) == (1, 19)
    assert not await opens(fleet, browser)


async def test_a_session_is_ended_from_another_and_only_once(fleet: Fleet) -> None:
    here, there = await fleet.sign_in(), await sign_in(fleet)
    path = f"{SESSIONS}/{there.json()['id']}"

    ended = await fleet.http.delete(path, headers=here)

    assert ended.status_code == 204
    assert "set-cookie" not in ended.headers
    check_problem(await fleet.http.delete(path, headers=here), 404, "not_found")
    assert not await opens(fleet, cookie_of(there))
    assert await opens(fleet, here)


async def test_ending_ones_own_session_by_its_id_clears_the_cookie(fleet: Fleet) -> None:
    signed_in = await sign_in(fleet)
    browser = cookie_of(signed_in) | {"Origin": fleet.url}

    ended = await fleet.http.delete(f"{SESSIONS}/{signed_in.json()['id']}", headers=browser)

    assert attributes(ended)["max-age"] == "0"


@pytest.mark.parametrize("session_id", ["UNKNOWN23456", "a%00b", "%ff", "x" * 300])
async def test_what_no_session_is_called_is_not_found(fleet: Fleet, session_id: str) -> None:
    answer = await fleet.http.delete(f"{SESSIONS}/{session_id}", headers=await fleet.headers())

    check_problem(answer, 404, "not_found")


async def test_a_session_ends_when_its_time_is_up_and_is_then_forgotten(fleet: Fleet) -> None:
    browser = await fleet.sign_in()

    fleet.clock.move(7 * DAY_SECONDS - 1)
    assert await opens(fleet, browser)
    fleet.clock.move(1)

    assert not await opens(fleet, browser)
    assert (await fleet.get(SESSIONS)).json()["sessions"] == []
    fleet.clock.move(1)
    await fleet.app.state.parts.retention.tick()
    assert (await fleet.store.holdings("acme"))["sessions"] == 0


@pytest.mark.parametrize("end", ["revoked", "expired", "rotated", "removed"])
async def test_a_session_and_its_stream_end_with_its_key(fleet: Fleet, end: str) -> None:
    now = fleet.clock.now()
    until = now + 60 * SECOND if end == "expired" else None
    own, plaintext = await keys.create(fleet.store, "acme", ["read"], now=now, expires_at=until)
    browser = await fleet.sign_in(key=plaintext)
    parts = fleet.app.state.parts

    async with following(fleet, browser) as stream:
        if end == "revoked":
            await fleet.store.revoke_key("acme", own.id, now=now)
        elif end == "removed":
            await fleet.store.remove_tenant("acme", now=now)
        elif end == "rotated":
            await keys.rotate(fleet.store, own, overlap=60 * SECOND, now=now)
        await parts.keyring.refresh()
        assert await opens(fleet, browser) == (end in ("expired", "rotated"))
        fleet.clock.move(60)
        await parts.feed.end_expired()

        assert await has_ended(stream)
    assert not await opens(fleet, browser)


async def test_a_rotated_keys_session_tells_its_new_end(fleet: Fleet) -> None:
    now = fleet.clock.now()
    own, plaintext = await keys.create(fleet.store, "acme", ["read"], now=now)
    browser = await fleet.sign_in(key=plaintext)

    await keys.rotate(fleet.store, own, overlap=60 * SECOND, now=now)

    told = (await fleet.http.get(CURRENT, headers=browser)).json()
    assert told["expires_at"] == now / SECOND + 60


async def test_a_stream_ends_with_its_own_session_alone(fleet: Fleet) -> None:
    gone, kept = await fleet.sign_in(), await fleet.sign_in()

    async with following(fleet, gone) as ending, following(fleet, kept) as lasting:
        assert (await fleet.http.delete(CURRENT, headers=gone)).status_code == 204
        assert await has_ended(ending)
        await fleet.app.state.parts.feed.end_signed_out()
        await fleet.beat("w")
        assert (await lasting.next())["event"] == "worker.online"


async def test_what_is_signed_out_at_one_collector_is_over_at_the_others(
    fleet: Fleet, store_url: str
) -> None:
    """A second process on the store, or on SQLite a second hand that works on its file."""
    browser = await fleet.sign_in()
    assert await opens(fleet, browser)
    session_id = (await fleet.http.get(CURRENT, headers=browser)).json()["id"]
    other = store_for(Settings(store_url=store_url))
    await other.open()

    async with following(fleet, browser) as stream:
        await other.end_session((await fleet.key())[3:11], session_id)
        async with asyncio.timeout(2):
            assert await has_ended(stream)
            while await opens(fleet, browser):
                await asyncio.sleep(0.05)
    await other.close()


async def test_streams_of_keys_cost_no_look_at_the_sessions(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(fleet.store), "sessions_gone", None)

    async with following(fleet, await fleet.headers()):
        await fleet.app.state.parts.feed.end_signed_out()


# Whose they are


async def test_sessions_are_listed_newest_first_for_their_key_alone(fleet: Fleet) -> None:
    first = (await sign_in(fleet)).json()["id"]
    fleet.clock.move(1)
    browser = await fleet.sign_in()
    await fleet.sign_in(key=await fleet.key(scopes=["read"]))
    await fleet.sign_in("blue")

    by_cookie = (await fleet.http.get(SESSIONS, headers=browser)).json()["sessions"]
    by_key = (await fleet.get(SESSIONS)).json()["sessions"]

    assert [each["current"] for each in by_cookie] == [True, False]
    assert [each["current"] for each in by_key] == [False, False]
    assert [each["id"] for each in by_key] == [each["id"] for each in by_cookie]
    assert by_key[1]["id"] == first


@pytest.mark.parametrize("tenant", ["acme", "blue"])
async def test_another_keys_session_is_not_there(fleet: Fleet, tenant: str) -> None:
    _, stranger = await keys.create(fleet.store, tenant, ["read"], now=fleet.clock.now())
    theirs = (await sign_in(fleet)).json()["id"]

    for headers in ({"Authorization": f"Bearer {stranger}"}, await fleet.sign_in(key=stranger)):
        answer = await fleet.http.delete(f"{SESSIONS}/{theirs}", headers=headers)
        check_problem(answer, 404, "not_found")

    assert len((await fleet.get(SESSIONS)).json()["sessions"]) == 1


async def test_a_parameter_is_refused_like_everywhere(fleet: Fleet) -> None:
    browser = await fleet.sign_in()

    for path in (SESSIONS, CURRENT):
        answer = await fleet.http.get(path, headers=browser, params={"limit": 1})
        check_problem(answer, 422, "invalid_field")


# At rest


def a_session(name: str, **fields: Any) -> Session:
    made = Session(f"digest-{name}", name, "acme", "AAAAAAAA", "curl", at(0), at(60))
    return replace(made, **fields)


async def test_a_key_has_no_more_sessions_than_it_may_and_the_oldest_go(store: Store) -> None:
    await store.add_key(key("AAAAAAAA"))
    for n in range(4):
        await store.add_session(a_session(f"s{n}", created_at=at(n)), most=3)

    left = await store.sessions_of("AAAAAAAA", now=at(4))

    assert [each.id for each in left] == ["s3", "s2", "s1"]
    assert await store.sessions_gone(["s0", "s1", "never"]) == {"s0", "never"}


async def test_of_twenty_sign_ins_at_once_as_many_stay_as_may(store: Store, store_url: str) -> None:
    await store.add_key(key("AAAAAAAA"))
    other = store_for(Settings(store_url=store_url))
    await other.open()

    await asyncio.gather(
        *((store, other)[n % 2].add_session(a_session(f"s{n}"), most=3) for n in range(20))
    )

    assert len(await store.sessions_of("AAAAAAAA", now=at(0))) == 3
    await other.close()


async def test_a_tenant_that_is_removed_while_many_sign_in_leaves_no_session(
    store: Store, store_url: str
) -> None:
    await store.add_key(key("AAAAAAAA"))
    other = store_for(Settings(store_url=store_url))
    await other.open()

    await asyncio.gather(
        store.remove_tenant("acme", now=at(1)),
        *(other.add_session(a_session(f"s{n}"), most=100) for n in range(20)),
        return_exceptions=True,
    )

    assert (await store.holdings("acme"))["sessions"] == 0
    await other.close()


async def test_the_setting_says_how_long_a_browser_stays_signed_in(
    store: Store, clock: TestClock
) -> None:
    async with Fleet.over(store, clock, session_days=1) as fleet:
        told = (await sign_in(fleet)).json()

    assert told["expires_at"] - told["created_at"] == DAY_SECONDS


async def test_a_session_of_more_days_than_a_store_can_count_is_still_made(
    store: Store, clock: TestClock
) -> None:
    async with Fleet.over(store, clock, session_days=10**12) as fleet:
        assert await opens(fleet, await fleet.sign_in())


async def test_only_what_is_over_is_pruned(store: Store, clock: TestClock) -> None:
    await store.add_key(key("AAAAAAAA"))
    for name, seconds in (("over", 10), ("lasting", 11)):
        await store.add_session(a_session(name, expires_at=at(seconds)), most=9)
    clock.move(10.5)

    await Retention(store, clock, Settings()).tick()

    assert await store.sessions_gone(["over", "lasting"]) == {"over"}
