"""R11, R25, R26: what the server says of itself, how it says that it can't, and of every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

from conformance import expect
from conformance.answers import Answer
from conformance.case import case
from conformance.trial import Trial
from conformance.wire import HEARTBEAT, ROSTER, Caller, body

# One tenant's share of the launcher's queue, and one more.
ONE_TOO_MANY = 513
# Heartbeats on one connection that nobody waits for: more than a server need keep.
AHEAD = 20
# A roster of some 9 MB: far more than a system keeps of what a client has not read.
LONG_TEXT = "\N{GRINNING FACE}" * 256
LONG_ROSTER = 1500
# More reads than may be under way and wait together.
MORE_READS_THAN_PLACES = 80
CAPABILITIES = {
    "audit", "conflict", "events", "filters", "gaps", "keys", "leave", "openorca", "paging",
    "presence", "removal", "sessions", "summary", "timeline",
}  # fmt: skip


@case(rule="R25", level="extended", needs=("stalling", "minting"), phase="alone")
async def a_tenant_past_its_share_is_told_to_come_back_and_others_are_not(t: Trial) -> None:
    flooding = t.caller(await t.control.mint(t.name("t"), "ingest"))
    await t.control.store("stall")
    try:
        flood = [asyncio.create_task(flooding.beat(name)) for name in t.names(ONE_TOO_MANY)]
        refused = await _first_refused(flood)
        refused.refused(503, "overloaded")
        expect.equal(refused.headers.get("retry-after"), "1", "Retry-After")
        other = asyncio.create_task(t.a.beat(t.name()))
        done, _ = await asyncio.wait([other], timeout=0.5)
        expect.true(not done, "another tenant's beat that waits for its commit", "it is refused")
    finally:
        await t.control.store("work")
    statuses = [(await each).status for each in flood]

    expect.equal((await other).status, 202, "the answer to another tenant")
    expect.equal(statuses.count(202), ONE_TOO_MANY - 1, "beats of the flood that were accepted")


def batched(names: list[str], size: int = 250) -> Iterator[list[str]]:
    """The names, so many at a time that their heartbeats are no flood."""
    return (names[start : start + size] for start in range(0, len(names), size))


async def _first_refused(flood: list[asyncio.Task[Answer]]) -> Answer:
    """The first answer; the others wait for what does not come."""
    done, _ = await asyncio.wait(flood, timeout=15, return_when=asyncio.FIRST_COMPLETED)
    expect.true(done, "an answer to one too many", "none within 15 s")
    return next(iter(done)).result()


@case(rule="R25", level="extended", needs=("minting", "sockets"), phase="alone")
async def a_tenant_whose_reads_are_all_under_way_is_told_to_come_back_and_others_are_not(
    t: Trial,
) -> None:
    reading = t.caller(await t.control.mint(t.name("t"), "ingest", "read"))
    long = dict.fromkeys(("project", "region", "host", "version", "dispatch_name"), LONG_TEXT)
    for names in batched(t.names(LONG_ROSTER)):
        await asyncio.gather(*(reading.beats(name, **long) for name in names))
    # Once before: a server may have places of their own for tenants that it does not know yet.
    (await reading.get(ROSTER)).was(200)
    async with AsyncExitStack() as held:
        for _ in range(MORE_READS_THAN_PLACES):
            await held.enter_async_context(reading.unread(ROSTER))
        asked, refused = await _refused_read(reading)
        refused.refused(429, "too_many_reads")
        expect.equal(refused.headers.get("retry-after"), "1", "Retry-After")

        await reading.beats(t.name())
        name = t.name()
        await t.a.beats(name)
        await t.a.worker(name)
    await asyncio.gather(*asked)

    roster = (await _read_at_last(reading)).was(200).json
    expect.equal(len(roster["workers"]), LONG_ROSTER + 1, "workers, once nobody else reads")


async def _read_at_last(reading: Caller) -> Answer:
    """The roster, once the server has noticed that nobody else wants it any more."""
    for _ in range(50):
        answer = await reading.get(ROSTER)
        if answer.status != 429:
            break
        await asyncio.sleep(0.2)
    return answer


async def _refused_read(reading: Caller) -> tuple[list[asyncio.Task[Answer]], Answer]:
    """The first answer to one too many, and all that were asked for.

    A server may hear them before it has accepted the last of the others' connections.
    """
    asked: list[asyncio.Task[Answer]] = []
    for _ in range(20):
        tries = [asyncio.create_task(reading.get(ROSTER)) for _ in range(4)]
        asked += tries
        first = await _first_refused(tries)
        if first.status != 200:
            break
    return asked, first


@case(rule="R25", level="extended", needs="stalling", phase="alone")
async def a_store_that_fails_is_told_and_the_next_beat_is_accepted(t: Trial) -> None:
    name = t.name()
    await t.control.store("fail")
    try:
        answer = await t.a.beat(name)
    finally:
        await t.control.store("work")

    answer.refused(503, "store_unavailable")
    expect.equal(answer.headers.get("retry-after"), "1", "Retry-After")
    await t.a.beats(name)


@case(rule="R25", level="extended", needs="contract", framed=True)
async def a_head_over_its_limits_is_refused_with_431(t: Trial) -> None:
    for count, length, is_too_large in ((60, 500, False), (60, 700, True), (101, 1, True)):
        name = t.name()
        padding = {f"X-Padding-{n}": "x" * length for n in range(count)}
        answer = await t.a.post(body(name), headers=padding)
        if is_too_large:
            answer.refused(431, "head_too_large")
        else:
            answer.was(202)
        expect.equal(len(await t.a.workers(name)), int(not is_too_large), "rows")


@case(rule="R25", level="extended", needs=("contract", "sockets"))
async def a_head_over_its_limits_ends_the_connection(t: Trial) -> None:
    head, _ = t.a.request(body(t.name()), ("X-Padding", "x" * 40_000))
    async with t.a.line() as line:
        await line.send(head)
        (await line.answer("a long head")).refused(431, "head_too_large")

        expect.true(await line.is_ended(), "the connection's end", "it goes on")


@case(rule="R25", level="extended", needs=("contract", "sockets"))
async def heartbeats_that_are_sent_ahead_are_answered_in_their_order(t: Trial) -> None:
    contents = [body(t.name(), status="idle" if n % 3 else "purple") for n in range(AHEAD)]
    sent = [t.a.request(each, ("X-Request-ID", f"n{n}")) for n, each in enumerate(contents)]
    async with t.a.line() as line:
        await line.send(b"".join(part for request in sent for part in request))
        answers = [await line.answer("a beat sent ahead") for _ in sent]

    ids = [each.headers.get("x-request-id") for each in answers]
    expect.equal(ids, [f"n{n}" for n in range(AHEAD)], "the ids of the answers")
    expect.equal([each.status == 202 for each in answers], [n % 3 > 0 for n in range(AHEAD)], "202")


@case(rule="R26", level="extended", needs="contract")
async def the_contract_is_described_without_a_key(t: Trial) -> None:
    said = (await t.nobody.get("/v1/contract")).was(200).json

    expect.fields(said, contract_version="1.0", beat_seconds=15, ttl_seconds=45)
    expect.equal(sorted(said["statuses"]), ["busy", "idle", "offline"], "statuses")
    expect.true(said["implementation"] and said["version"], "a name and a version", said)


@case(rule="R26", level="extended", needs="clock")
async def every_capability_is_named(t: Trial) -> None:
    said = (await t.nobody.get("/v1/contract")).was(200).json

    expect.equal(set(said["capabilities"]), CAPABILITIES, "capabilities")


@case(rule="R26", level="extended", needs="contract")
async def health_and_readiness_need_no_key(t: Trial) -> None:
    expect.equal((await t.nobody.get("/healthz")).was(200).json, {"status": "ok"}, "/healthz")
    expect.equal((await t.nobody.get("/readyz")).was(200).json, {"status": "ready"}, "/readyz")


@case(rule="R26", level="extended", needs="contract")
async def metrics_are_prometheus_text(t: Trial) -> None:
    answer = (await t.nobody.get("/metrics")).was(200)

    expect.true("# TYPE " in answer.text, "metrics with types", answer.text[:100])
    kind = answer.headers.get("content-type", "")
    expect.true(kind.startswith("text/plain"), "text/plain", kind)


@case(rule="R11", level="core")
async def no_answer_is_kept_or_taken_for_another_kind(t: Trial) -> None:
    # The second beat of a key that is known may take another way than the first.
    answers = [await t.a.beat(t.name()) for _ in range(2)]
    answers += [await t.a.get(ROSTER), await t.nobody.get(ROSTER), await t.a.get("/v1/nothing")]
    answers += [await t.a.get(ROSTER, colour="red"), await t.a.send("PUT", ROSTER)]
    answers += [await t.a.send("POST", HEARTBEAT, content=b"{")]

    for answer in answers:
        kept = answer.headers.get("cache-control")
        expect.equal(kept, "no-store", f"Cache-Control of {answer.request}: {answer.status}")
        kind = answer.headers.get("x-content-type-options")
        expect.equal(kind, "nosniff", f"X-Content-Type-Options of {answer.request}")


@case(rule="R11", level="core")
async def a_key_without_its_prefix_is_no_request_id(t: Trial) -> None:
    secret = "ABCDEFGH" * 4
    for sent in (secret, secret.lower(), f"job-{secret}"):
        answer = await t.a.send("GET", ROSTER, headers={"X-Request-ID": sent})
        expect.true(
            secret not in answer.headers.get("x-request-id", "").upper(), "a fresh id", "it"
        )
    for sent in (secret[:31], secret + "A"):
        answer = await t.a.send("GET", ROSTER, headers={"X-Request-ID": sent})
        expect.equal(answer.headers.get("x-request-id"), sent, "the caller's own")
