"""R27, R33 to R35: keys over HTTP, who did what, and how much a tenant may have."""

from __future__ import annotations

import asyncio

from conformance import expect
from conformance.answers import Answer
from conformance.case import case
from conformance.streams import Json
from conformance.trial import Trial
from conformance.wire import ROSTER, Caller

KEY = {
    "id", "name", "scopes", "state", "created_at", "expires_at", "last_used_at", "revoked_at",
}  # fmt: skip
ENDED_WITHIN = 2.5


@case(rule="R33", level="extended", needs="keys")
async def a_key_that_was_made_opens_what_was_asked_for_and_nothing_else(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"], name="conformance")

    expect.fields(made, name="conformance", scopes=["read"], state="active", expires_at=None)
    caller = t.caller(made["key"])
    (await caller.get(ROSTER)).was(200)
    (await caller.beat(t.name())).refused(403, "missing_scope")
    (await caller.get("/v1/keys")).refused(403, "missing_scope")
    await _revoke(t.a, made["id"])


@case(rule="R33", level="extended", needs="keys")
async def keys_are_listed_whole_and_without_their_plaintext(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"])

    answer = (await t.a.get("/v1/keys")).was(200)

    (listed,) = [key for key in answer.json["keys"] if key["id"] == made["id"]]
    expect.equal(set(listed), KEY, "fields of a key")
    expect.true(made["key"] not in answer.text, "no plaintext", "it is in there")
    await _revoke(t.a, made["id"])


@case(rule="R33", level="extended", needs="keys")
async def a_wrong_request_for_a_key_is_refused(t: Trial) -> None:
    wrong: list[tuple[str, Json]] = [
        ("scopes", {}),
        ("scopes", {"scopes": []}),
        ("tenant_id", {"scopes": ["read"], "tenant_id": t.target.other_tenant}),
        ("expires_in_seconds", {"scopes": ["read"], "expires_in_seconds": 0}),
        ("name", {"scopes": ["read"], "name": "x" * 257}),
    ]
    for field, sent in wrong:
        (await t.a.send("POST", "/v1/keys", json=sent)).refused(422, "invalid_field", field)


@case(rule="R33", level="extended", needs="minting")
async def no_scope_is_given_that_the_giver_lacks(t: Trial) -> None:
    admin = t.caller(await t.control.mint(t.name("t"), "admin"))

    for scopes in (["read"], ["admin", "ingest"]):
        answer = await admin.send("POST", "/v1/keys", json={"scopes": scopes})
        answer.refused(403, "missing_scope")


@case(rule="R33", level="extended", needs="keys")
async def a_revoked_key_is_refused_and_listed_as_revoked(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"])
    await _revoke(t.a, made["id"])
    await _revoke(t.a, made["id"])
    await asyncio.sleep(ENDED_WITHIN)

    (await t.caller(made["key"]).get(ROSTER)).refused(401, "unauthenticated")
    expect.equal((await _listed(t.a, made["id"]))["state"], "revoked")


@case(rule="R33", level="extended", needs=("keys", "clock"))
async def an_expired_key_is_refused_within_2_seconds(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"], expires_in_seconds=30)
    caller = t.caller(made["key"])
    (await caller.get(ROSTER)).was(200)

    await t.sleep(29)
    (await caller.get(ROSTER)).was(200)
    await t.sleep(1)
    await asyncio.sleep(ENDED_WITHIN)

    (await caller.get(ROSTER)).refused(401, "unauthenticated")
    expect.equal((await _listed(t.a, made["id"]))["state"], "expired")


@case(rule="R33", level="extended", needs=("keys", "events", "clock"))
async def a_stream_ends_when_its_key_expires(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"], expires_in_seconds=20)
    async with t.caller(made["key"]).stream() as stream:
        await stream.snapshot()
        await t.sleep(20)

        await stream.ended(2 * ENDED_WITHIN)


@case(rule="R33", level="extended", needs=("keys", "clock"))
async def a_rotated_key_goes_on_for_the_overlap_and_its_successor_beyond(t: Trial) -> None:
    old = await _make(t.a, scopes=["read"], name="edge")
    new = (await _rotate(t.a, old["id"], overlap_seconds=25)).was(201).json
    expect.fields(new, name="edge", scopes=["read"], state="active")
    callers = [t.caller(key["key"]) for key in (old, new)]
    expect.equal([(await each.get(ROSTER)).status for each in callers], [200, 200], "at once")

    await t.sleep(25)
    await asyncio.sleep(ENDED_WITHIN)

    expect.equal([(await each.get(ROSTER)).status for each in callers], [401, 200], "after it")


@case(rule="R33", level="extended", needs="keys")
async def a_revoked_key_is_not_rotated(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"])
    await _revoke(t.a, made["id"])

    (await _rotate(t.a, made["id"])).refused(409, "not_active")


@case(rule="R33", level="extended", needs="keys")
async def of_ten_rotations_at_once_one_is_done(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"])

    answers = await asyncio.gather(*(_rotate(t.a, made["id"]) for _ in range(10)))

    done = [answer for answer in answers if answer.status == 201]
    expect.equal(len(done), 1, "rotations done")
    for answer in answers:
        if answer not in done:
            answer.refused(409, "not_active")
    (await _rotate(t.a, made["id"])).refused(409, "not_active")
    again = (await _rotate(t.a, done[0].json["id"])).was(201).json
    for key_id in (made["id"], done[0].json["id"], again["id"]):
        await _revoke(t.a, key_id)


@case(rule="R33", level="extended", needs=("keys", "events"))
async def a_stream_ends_with_a_rotation_that_leaves_its_key_no_time(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"])
    async with t.caller(made["key"]).stream() as stream:
        await stream.snapshot()
        new = (await _rotate(t.a, made["id"], overlap_seconds=0)).was(201).json

        await stream.ended(2 * ENDED_WITHIN)
    await _revoke(t.a, new["id"])


@case(rule="R33", level="extended", needs="keys")
async def a_successor_lasts_as_long_as_its_key_was_made_to(t: Trial) -> None:
    for asked, lasts in (({}, 86400), ({"expires_in_seconds": 60}, 60)):
        made = await _make(t.a, scopes=["read"], expires_in_seconds=86400)
        new = (await _rotate(t.a, made["id"], **asked)).was(201).json
        expect.equal(round(new["expires_at"] - new["created_at"]), lasts, "seconds that it lasts")
        for key in (made, new):
            await _revoke(t.a, key["id"])


@case(rule="R33", level="extended", needs="keys")
async def anothers_key_is_as_unknown_as_one_that_is_not_there(t: Trial) -> None:
    theirs = await _make(t.b, scopes=["read"])
    for key_id in (theirs["id"], "AAAAAAA2"):
        (await t.a.send("DELETE", f"/v1/keys/{key_id}")).refused(404, "not_found")
        (await _rotate(t.a, key_id)).refused(404, "not_found")
    listed = [key["id"] for key in (await t.a.get("/v1/keys")).was(200).json["keys"]]
    expect.true(theirs["id"] not in listed, "the tenant's own keys alone", listed)
    (await t.caller(theirs["key"]).get(ROSTER)).was(200)
    await _revoke(t.b, theirs["id"])


@case(rule="R34", level="extended", needs=("keys", "audit"))
async def what_is_done_to_a_key_is_audited(t: Trial) -> None:
    made = await _make(t.a, scopes=["read"])
    new = (await _rotate(t.a, made["id"])).was(201).json
    await _revoke(t.a, made["id"])
    await _revoke(t.a, made["id"])
    await _revoke(t.a, new["id"])

    acts = await _acts(t.a, made["id"])

    expect.equal(
        [act["action"] for act in acts], ["key.revoked", "key.rotated", "key.created"], "actions"
    )
    actors = {act["actor"] for act in acts}
    expect.true(len(actors) == 1 and "operator" not in actors, "the caller's key", actors)
    expect.true(made["key"] not in str(acts), "no plaintext", "it is in there")


@case(rule="R34", level="extended", needs=("removal", "audit"))
async def a_removal_is_audited_once(t: Trial) -> None:
    name = t.name()
    await t.a.beats(name)
    for _ in range(2):
        await t.a.send("DELETE", f"{ROSTER}/{name}")

    acts = await _acts(t.a, name)

    expect.equal([act["action"] for act in acts], ["worker.removed"], "actions")


@case(rule="R34", level="extended", needs="audit")
async def the_audit_is_the_tenants_own_and_read_in_pages(t: Trial) -> None:
    made = [await _make(t.a, scopes=["read"]) for _ in range(3)]
    first = (await t.a.get("/v1/audit", limit=2)).was(200).json
    rest = (await t.a.get("/v1/audit", limit=1000, before=first["next_before"])).was(200).json

    ids = [act["id"] for act in (*first["acts"], *rest["acts"])]
    expect.equal(len(first["acts"]), 2, "acts of the first page")
    expect.equal(ids, sorted(set(ids), reverse=True), "ids")
    for key in made:
        expect.equal(await _acts(t.b, key["id"]), [], "acts in another tenant's audit")
        await _revoke(t.a, key["id"])


@case(rule="R34", level="extended", needs="audit")
async def the_audit_wants_an_admin_and_right_parameters(t: Trial) -> None:
    (await t.nobody.get("/v1/audit")).was(401)
    for field, value in (("limit", "0"), ("limit", "1001"), ("before", "x"), ("colour", "x")):
        (await t.a.get("/v1/audit", **{field: value})).refused(422, "invalid_field", field)


@case(rule="R35", level="extended", needs="minting")
async def a_key_past_the_quota_is_told_to_come_back(t: Trial) -> None:
    admin = t.caller(await t.control.mint(t.name("t"), "admin"))
    answers: list[Answer] = []
    while len(answers) < 40 and (not answers or answers[-1].status == 201):
        answers.append(await admin.send("POST", "/v1/keys", json={"scopes": ["admin"]}))

    refused = answers[-1].refused(429, "quota_exceeded")

    expect.true(int(refused.headers.get("retry-after", "0")) > 0, "Retry-After", refused.headers)
    (await admin.get("/v1/keys")).was(200)


@case(rule="R35", level="extended", needs="minting")
async def keys_asked_for_at_once_do_not_pass_the_quota(t: Trial) -> None:
    admin = t.caller(await t.control.mint(t.name("t"), "admin"))
    asked = {"scopes": ["admin"]}
    answers = await asyncio.gather(*(admin.send("POST", "/v1/keys", json=asked) for _ in range(40)))
    made = sum(answer.status == 201 for answer in answers)
    (await admin.send("POST", "/v1/keys", json=asked)).refused(429, "quota_exceeded")

    one_by_one = t.caller(await t.control.mint(t.name("t"), "admin"))
    allowed = 0
    while allowed < 40 and (await one_by_one.send("POST", "/v1/keys", json=asked)).status == 201:
        allowed += 1

    expect.equal(made, allowed, "keys made at once")


@case(rule="R27", level="extended", needs="removal")
async def all_who_match_are_removed_after_a_preview_that_removes_nobody(t: Trial) -> None:
    project, names, other = t.name("project"), t.names(3), t.name()
    for name in names:
        await t.a.beats(name, project=project)
    await t.a.beats(other, project="another")
    await t.b.beats(names[0], project=project)

    preview = (await t.a.send("DELETE", f"{ROSTER}?project={project}&dry_run=true")).was(200).json
    expect.fields(preview, matched=3, removed=0, dry_run=True)
    expect.equal(sorted(preview["agent_ids"]), sorted(names), "who would go")
    expect.equal(len(await t.a.workers(*names)), 3, "rows after the preview")

    done = (await t.a.send("DELETE", f"{ROSTER}?project={project}")).was(200).json

    expect.fields(done, matched=3, removed=3, dry_run=False)
    expect.equal(len(await t.a.workers(*names, other)), 1, "rows that are left")
    expect.equal(len(await t.b.workers(names[0])), 1, "another tenant's rows")


@case(rule="R27", level="extended", needs="removal")
async def a_removal_in_bulk_wants_to_know_whom(t: Trial) -> None:
    await t.a.beats(t.name())
    for query in ("", "?dry_run=true", "?dry_run=maybe&project=p", "?colour=x", "?unseen_for=x"):
        (await t.a.send("DELETE", f"{ROSTER}{query}")).refused(422, "invalid_field")


async def _make(caller: Caller, **asked: object) -> Json:
    made: Json = (await caller.send("POST", "/v1/keys", json=asked)).was(201).json
    return made


async def _rotate(caller: Caller, key_id: str, **asked: object) -> Answer:
    return await caller.send("POST", f"/v1/keys/{key_id}/rotate", json=asked)


async def _revoke(caller: Caller, key_id: str) -> None:
    (await caller.send("DELETE", f"/v1/keys/{key_id}")).was(204)


async def _listed(caller: Caller, key_id: str) -> Json:
    keys: list[Json] = (await caller.get("/v1/keys")).was(200).json["keys"]
    (found,) = [key for key in keys if key["id"] == key_id]
    return found


async def _acts(caller: Caller, subject: str) -> list[Json]:
    acts: list[Json] = (await caller.get("/v1/audit", limit=1000)).was(200).json["acts"]
    return [act for act in acts if act["subject"] == subject]
