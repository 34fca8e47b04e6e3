"""R7 to R10: what a heartbeat may say, how much of it, and what the answer promises."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any

from conformance import expect
from conformance.case import case
from conformance.trial import Trial
from conformance.wire import ABSENT, body

MAX_BODY = 16_384
MAX_TEXT = 256
MAX_INTEGER = 9_223_372_036_854_775_807
MAX_TIME = 253_402_300_799
TEXTS = ("agent_id", "agent_name", "version", "project", "region", "host", "dispatch_name")
WHOLE = ("active_sessions", "memory_rss_bytes", "memory_total_bytes")
NOT_JSON = (
    b"",
    b"{",
    b"not json",
    b'{"agent_id": "x",}',
    b'{"agent_id": NaN}',
    b'{"agent_id": Infinity}',
    b"\xff\xfe",
    b'{"agent_id": "\xc3\x28"}',
    b"[" * 8_000,
)
ANYTHING: list[Any] = [None, 7, 1e308, -3, True, "x" * 5000, ["a"], {"b": {}}, "\x00", MAX_TIME + 1]
NO_MOMENT: list[Any] = ["soon", True, [1], {}, 1e300, MAX_TIME + 1, -MAX_TIME - 1]
NO_TEXT: list[Any] = [7, True, ["x"], {"a": 1}]
NO_NUMBER: list[Any] = ["12", True, -0.5, [], {}]
NOT_WHOLE: list[Any] = ["3", True, 1.5, [], -1]
NOT_AN_OBJECT = (b"[]", b'["a"]', b'"text"', b"7", b"null", b"true")


@case(rule="R7", level="core", framed=True)
async def what_was_accepted_is_there_for_the_next_reader(t: Trial) -> None:
    for n, name in enumerate(t.names(20)):
        await t.a.beats(name, status="busy", active_sessions=n)

        expect.fields(await t.a.worker(name), status="busy", active_sessions=n)


@case(rule="R7", level="core", framed=True)
async def of_many_beats_at_once_all_that_were_accepted_are_there(t: Trial) -> None:
    names = t.names(100)
    await asyncio.gather(*(t.a.beats(name, active_sessions=7) for name in names))

    found = {each["agent_id"]: each["active_sessions"] for each in await t.a.workers(*names)}

    expect.equal(found, dict.fromkeys(names, 7))


@case(rule="R7", level="core")
async def what_was_accepted_is_there_however_many_read_at_that_moment(t: Trial) -> None:
    async def beat_and_look(name: str) -> None:
        for sessions in range(8):
            await t.a.beats(name, status="busy", active_sessions=sessions)

            expect.fields(await t.a.worker(name), active_sessions=sessions)

    await asyncio.gather(*map(beat_and_look, t.names(12)))


@case(rule="R7", level="extended", needs="restart", phase="alone")
async def what_was_accepted_survives_a_kill(t: Trial) -> None:
    names = t.names(50)
    await asyncio.gather(*(t.a.beats(name, version="kept") for name in names))

    await t.control.restart()

    found = {each["agent_id"]: each["version"] for each in await t.a.workers(*names)}
    expect.equal(found, dict.fromkeys(names, "kept"))


@case(rule="R7", level="extended", needs="stalling", phase="alone")
async def a_beat_that_waits_is_not_answered_before_its_commit(t: Trial) -> None:
    name = t.name()
    await t.control.store("stall")
    try:
        waiting = asyncio.create_task(t.a.beat(name))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        expect.true(not done, "no answer yet", done)
        expect.equal(await t.a.workers(name), [], "rows before the commit")
    finally:
        await t.control.store("work")

    (await waiting).was(202)
    expect.equal(len(await t.a.workers(name)), 1, "rows after it")


@case(rule="R8", level="core", framed=True)
async def what_is_not_json_is_refused_with_400(t: Trial) -> None:
    for content in NOT_JSON:
        (await t.a.post(content)).was(400)


@case(rule="R8", level="core", framed=True)
async def json_that_is_no_object_is_refused_with_422(t: Trial) -> None:
    for content in NOT_AN_OBJECT:
        (await t.a.post(content)).was(422)


@case(rule="R8", level="core", framed=True)
async def each_required_field_is_required(t: Trial) -> None:
    for missing in ("agent_id", "agent_name", "status"):
        whole = body(t.name())
        (await t.a.post(whole | {missing: None})).was(422)
        del whole[missing]
        (await t.a.post(whole)).was(422)


@case(rule="R8", level="core", framed=True)
async def every_other_field_may_be_null_or_absent(t: Trial) -> None:
    absent, null = t.name(), t.name()
    optional = (*TEXTS[2:], *WHOLE, "tenant_id", "started_at", "ts", "cpu_pct")
    await t.a.beats(absent, ts=ABSENT)
    await t.a.beats(null, **dict.fromkeys(optional))

    for row in await t.a.workers(absent, null):
        expect.fields(row, active_sessions=0, version=None, project=None, started_at=None)


@case(rule="R8", level="core", framed=True)
async def unknown_fields_are_ignored(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, colour="green", nested={"a": [1, 2]}, last_seen=1, first_seen=1)

    row = await t.a.worker(name)

    expect.true("colour" not in row and "nested" not in row, "no unknown field", sorted(row))
    expect.true(row["last_seen"] > 1, "a last_seen of the server's", row["last_seen"])


@case(rule="R8", level="core", framed=True)
async def known_fields_have_their_types(t: Trial) -> None:
    wrong: list[tuple[str, Any]] = [
        *product(TEXTS, NO_TEXT),
        *product(WHOLE, NOT_WHOLE),
        *product(("started_at", "cpu_pct"), NO_NUMBER),
    ]
    names = t.names(len(wrong))
    for name, (field, value) in zip(names, wrong, strict=True):
        answer = await t.a.post(body(name) | {field: value})
        expect.equal(answer.status, 422, f"the answer to {field} {value!r}")

    expect.equal(await t.a.workers(*names), [], "rows after wrong types")


@case(rule="R8", level="core", framed=True)
async def negative_sessions_are_refused_and_never_served(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, active_sessions=1)
    answer = await t.a.beat(name, active_sessions=-4)

    expect.equal((await t.a.worker(name))["active_sessions"], 1, "active_sessions")
    answer.was(422)


@case(rule="R8", level="core", framed=True)
async def a_whole_number_may_be_written_with_a_fraction_of_zero(t: Trial) -> None:
    name = t.name()
    (await t.a.post(json.dumps(body(name)).encode()[:-1] + b', "active_sessions": 3.0}')).was(202)

    expect.equal((await t.a.worker(name))["active_sessions"], 3)


@case(rule="R8", level="core", framed=True)
async def an_id_that_no_url_can_name_is_refused(t: Trial) -> None:
    for agent_id in (".", "..", ""):
        (await t.a.beat(agent_id)).was(422)


@case(rule="R8", level="core", framed=True)
async def control_characters_and_lone_surrogates_are_refused(t: Trial) -> None:
    for escaped in ("\\u0000", "\\u001f", "\\u007f", "\\u009f", "\\n", "\\ud800", "\\udc00x"):
        for field in ("agent_id", "agent_name", "version", "dispatch_name"):
            whole = json.dumps(body(t.name()) | {field: "MARK"})
            answer = await t.a.post(whole.replace("MARK", f"a{escaped}b").encode())
            expect.equal(answer.status, 422, f"the answer to {field} with {escaped}")


@case(rule="R8", level="core", framed=True)
async def text_of_any_script_comes_back_as_it_was_sent(t: Trial) -> None:
    for text in (
        "Grüße",
        "日本語",
        "👩‍👩‍👧",
        "a'b\"c\\d",
        "%41",
        "<b>&amp;</b>",
        " padded ",
        "a\u0301",
    ):
        name = f"{t.name()}{text}"
        await t.a.beats(name, agent_name=text, project=text, version=text)

        expect.fields(await t.a.worker(name), agent_name=text, project=text, version=text)


@case(rule="R8", level="core", framed=True)
async def of_a_name_given_twice_the_last_counts(t: Trial) -> None:
    name = t.name()
    twice = json.dumps(body(name, status="idle"))[:-1] + ', "status": "busy"}'
    (await t.a.post(twice.encode())).was(202)

    expect.equal((await t.a.worker(name))["status"], "busy")


@case(rule="R8", level="core", framed=True)
async def the_content_type_is_not_looked_at(t: Trial) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "nonsense"):
        name = t.name()
        (await t.a.post(body(name), headers={"Content-Type": kind})).was(202)

        expect.equal(len(await t.a.workers(name)), 1, f"rows after {kind}")


@case(rule="R8", level="core", framed=True)
async def a_body_that_is_refused_changes_nothing(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name, status="busy", version="1")
    row = await t.a.worker(name)
    await t.a.beat(name, status="idle", version="2", cpu_pct="much")
    await t.a.beat(name, status="idle", version="x" * 257)

    expect.fields(await t.a.worker(name), status="busy", version="1", last_seen=row["last_seen"])


@case(rule="R9", level="core", framed=True)
async def tenant_id_and_ts_may_be_anything(t: Trial) -> None:
    for value in ANYTHING:
        await t.a.beats(t.name(), tenant_id=value, ts=value)


@case(rule="R9", level="core", framed=True)
async def a_ts_that_is_no_moment_is_kept_as_null(t: Trial) -> None:
    for value in NO_MOMENT:
        name = t.name()
        await t.a.beats(name, ts=value)

        expect.equal((await t.a.worker(name))["ts"], None, f"ts after {value!r}")


@case(rule="R9", level="core", framed=True)
async def a_ts_at_either_limit_is_kept(t: Trial) -> None:
    for value in (MAX_TIME, -MAX_TIME, 0):
        name = t.name()
        await t.a.beats(name, ts=value)

        expect.equal((await t.a.worker(name))["ts"], value)


@case(rule="R10", level="core", framed=True)
async def text_of_256_characters_is_accepted_and_of_257_is_not(t: Trial) -> None:
    for field in TEXTS:
        for character in ("x", "ß", "😀"):
            stem = t.name()
            fits = stem + character * (MAX_TEXT - len(stem))
            answer = await t.a.post(body(t.name()) | {field: fits})
            expect.equal(answer.status, 202, f"the answer to {field} of 256 times {character}")
            answer = await t.a.post(body(t.name()) | {field: fits + character})
            expect.equal(answer.status, 422, f"the answer to {field} of 257 times {character}")


@case(rule="R10", level="core", framed=True)
async def numbers_at_their_limit_are_accepted_and_past_it_are_not(t: Trial) -> None:
    limits: dict[str, tuple[Any, Any]] = {
        **dict.fromkeys(WHOLE, (MAX_INTEGER, MAX_INTEGER + 1)),
        "started_at": (MAX_TIME, MAX_TIME + 1),
        "cpu_pct": (1_000_000, 1_000_000.5),
    }
    for field, (fits, too_much) in limits.items():
        name = t.name()
        await t.a.beats(name, **{field: fits})
        expect.equal((await t.a.worker(name))[field], fits, field)
        answer = await t.a.beat(name, **{field: too_much})
        expect.equal(answer.status, 422, f"the answer to {field} {too_much}")


@case(rule="R10", level="core", framed=True)
async def a_body_of_16384_bytes_is_accepted_and_a_longer_one_is_413(t: Trial) -> None:
    name = t.name()
    (await t.a.post(_of_length(name, MAX_BODY))).was(202)
    (await t.a.post(_of_length(name, MAX_BODY + 1))).was(413)
    (await t.a.post(_of_length(name, 3_000_000))).was(413)


@case(rule="R10", level="core", framed=True)
async def a_body_of_no_announced_length_has_the_same_limit(t: Trial) -> None:
    name = t.name()
    (await t.a.post(_of_length(name, MAX_BODY), announced=False)).was(202)
    (await t.a.post(_of_length(name, MAX_BODY + 1), announced=False)).was(413)


def _of_length(name: str, length: int) -> bytes:
    bare = body(name, pad="")
    return json.dumps(bare | {"pad": "x" * (length - len(json.dumps(bare)))}).encode()
