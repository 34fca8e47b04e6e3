"""R11: every refusal has one shape, and says which field is at fault."""

from __future__ import annotations

import json

from conformance import expect
from conformance.answers import Answer
from conformance.case import case
from conformance.trial import Trial
from conformance.wire import HEARTBEAT, ROSTER, address, body

FIELDS = {"type", "title", "status", "detail", "code", "errors"}
UNKNOWN_KEY = "vk_" + "A" * 32


@case(rule="R11", level="core", framed=True)
async def what_is_not_json_is_malformed_json(t: Trial) -> None:
    _is_a_problem((await t.a.post(b"{")).refused(400, "malformed_json"))


@case(rule="R11", level="core", framed=True)
async def a_wrong_field_is_invalid_field_and_named(t: Trial) -> None:
    answer = await t.a.post(body(t.name(), status="purple", cpu_pct="much"))

    _is_a_problem(answer.refused(422, "invalid_field", "status", "cpu_pct"))


@case(rule="R11", level="core", framed=True)
async def a_missing_field_is_named(t: Trial) -> None:
    _is_a_problem((await t.a.post({})).refused(422, "invalid_field", "agent_id", "status"))


@case(rule="R11", level="core", framed=True)
async def a_body_that_is_no_object_names_the_body(t: Trial) -> None:
    _is_a_problem((await t.a.post([])).refused(422, "invalid_field", "body"))


@case(rule="R11", level="core", framed=True)
async def too_long_a_body_is_too_large(t: Trial) -> None:
    answer = await t.a.post(b" " * 16_385)

    _is_a_problem(answer.refused(413, "too_large"))


@case(rule="R11", level="core")
async def no_key_is_unauthenticated(t: Trial) -> None:
    _is_a_problem((await t.nobody.get(ROSTER)).refused(401, "unauthenticated"))


@case(rule="R11", level="extended", needs="ingest key")
async def a_key_without_the_scope_is_missing_scope(t: Trial) -> None:
    _is_a_problem((await t.ingest.get(ROSTER)).refused(403, "missing_scope"))


@case(rule="R11", level="core")
async def no_such_worker_and_no_such_route_are_not_found(t: Trial) -> None:
    _is_a_problem((await t.a.get(address(t.name()))).refused(404, "not_found"))
    _is_a_problem((await t.a.get("/v1/nothing/of/the/kind")).refused(404, "not_found"))


@case(rule="R11", level="core")
async def a_method_that_a_route_has_not_is_method_not_allowed(t: Trial) -> None:
    answer = (await t.a.send("PUT", ROSTER)).refused(405, "method_not_allowed")

    _is_a_problem(answer)
    expect.true("GET" in answer.headers.get("allow", ""), "an Allow that names GET", answer.headers)


@case(rule="R11", level="core", framed=True)
async def the_key_is_checked_before_the_body(t: Trial) -> None:
    (await t.nobody.post(b"{")).refused(401, "unauthenticated")
    (await t.nobody.post(body("x", status="purple"))).refused(401, "unauthenticated")


@case(rule="R11", level="extended", needs="read key", framed=True)
async def the_scope_is_checked_before_the_body(t: Trial) -> None:
    (await t.read.post(b"{")).refused(403, "missing_scope")


@case(rule="R11", level="core", framed=True)
async def what_was_sent_is_never_echoed_as_a_value(t: Trial) -> None:
    secret = "do-not-repeat-me"
    for content in (body(secret, status=secret), body(secret, cpu_pct=secret), [secret]):
        answer = await t.a.post(content)
        expect.true(secret not in answer.text, "a problem without the value", answer.text)


@case(rule="R11", level="core", framed=True)
async def all_wrong_fields_are_named_at_once(t: Trial) -> None:
    wrong = ("agent_name", "status", "version", "project", "region", "host", "cpu_pct")
    answer = await t.a.post(body(t.name()) | dict.fromkeys(wrong, True))

    answer.refused(422, "invalid_field", *wrong)


@case(rule="R11", level="core")
async def every_answer_carries_the_callers_request_id_or_a_fresh_one(t: Trial) -> None:
    for path in (ROSTER, "/v1/nothing", HEARTBEAT):
        given = await t.a.send("GET", path, headers={"X-Request-ID": "caller-1"})
        expect.equal(given.headers.get("x-request-id"), "caller-1", f"the id of GET {path}")
    fresh = [(await t.a.get(ROSTER)).headers.get("x-request-id") for _ in range(2)]
    expect.true(all(fresh) and fresh[0] != fresh[1], "two fresh ids", fresh)


@case(rule="R11", level="core")
async def a_request_id_that_is_none_is_replaced(t: Trial) -> None:
    for bad in ("x" * 129, "two words", UNKNOWN_KEY):
        answer = await t.a.send("GET", ROSTER, headers={"X-Request-ID": bad})
        given = answer.headers.get("x-request-id")
        expect.true(given and given != bad, "a fresh id", given)


def _is_a_problem(answer: Answer) -> None:
    kind = answer.headers.get("content-type", "")
    expect.true(kind.split(";")[0] == "application/problem+json", "application/problem+json", kind)
    problem = answer.json
    expect.equal(set(problem), FIELDS, "the problem's fields")
    expect.equal(problem["status"], answer.status, "its status")
    for error in problem["errors"]:
        expect.equal(set(error), {"field", "message"}, "an error's fields")
    expect.true(problem["title"] and problem["detail"], "a title and a detail", json.dumps(problem))
