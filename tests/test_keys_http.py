"""Keys over their life, over HTTP: made, used, rotated, expired, revoked, audited."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from collector.values import SECOND
from tests.fleet import Fleet
from tests.test_doors import check_problem


async def ask(
    fleet: Fleet, method: str, path: str, sent: Any = None, *, key: str | None = None
) -> httpx2.Response:
    bearer = key or await fleet.key()
    headers = {"Authorization": f"Bearer {bearer}"}
    return await fleet.http.request(method, path, headers=headers, json=sent)


async def mint(fleet: Fleet, **asked: Any) -> dict[str, Any]:
    answer = await ask(fleet, "POST", "/v1/keys", {"scopes": ["read"], **asked})
    assert answer.status_code == 201, answer.text
    key: dict[str, Any] = answer.json()
    return key


async def opens(fleet: Fleet, key: str) -> bool:
    answer = await ask(fleet, "GET", "/v1/agents", key=key)
    assert answer.status_code in (200, 401)
    return answer.status_code == 200


async def test_a_key_that_was_made_opens_what_was_asked_for(fleet: Fleet) -> None:
    made = await mint(fleet, name="console")

    assert made["key"].startswith(f"vk_{made['id']}")
    assert (made["name"], made["scopes"], made["state"]) == ("console", ["read"], "active")
    assert await opens(fleet, made["key"])
    refused = await ask(fleet, "GET", "/v1/keys", key=made["key"])
    check_problem(refused, 403, "missing_scope")


async def test_a_key_is_listed_without_its_plaintext(fleet: Fleet) -> None:
    made = await mint(fleet)

    listed = (await ask(fleet, "GET", "/v1/keys")).json()

    assert made["id"] in [key["id"] for key in listed["keys"]]
    assert made["key"] not in str(listed)
    assert "digest" not in str(listed)


async def test_an_admin_gives_no_scope_that_it_lacks(fleet: Fleet) -> None:
    admin = await fleet.key(scopes=["admin"])

    answer = await ask(fleet, "POST", "/v1/keys", {"scopes": ["admin", "read"]}, key=admin)

    check_problem(answer, 403, "missing_scope")


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["write"]}, "scopes"),
        ({"scopes": ["read"], "tenant_id": "blue"}, "tenant_id"),
        ({"scopes": ["read"], "name": "a\x00b"}, "name"),
        ({"scopes": ["read"], "expires_in_seconds": 0}, "expires_in_seconds"),
        ({"scopes": ["read"], "expires_in_seconds": True}, "expires_in_seconds"),
        ({"scopes": ["read"], "expires_in_seconds": 1.5}, "expires_in_seconds"),
    ],
)
async def test_a_wrong_request_names_its_field(fleet: Fleet, sent: Any, field: str) -> None:
    problem = check_problem(await ask(fleet, "POST", "/v1/keys", sent), 422, "invalid_field")

    assert any(error["field"].startswith(field) for error in problem["errors"])


async def test_a_whole_number_may_be_written_with_a_point(fleet: Fleet) -> None:
    made = await mint(fleet, expires_in_seconds=60.0)

    assert made["expires_at"] == made["created_at"] + 60


async def test_an_expired_key_opens_nothing(fleet: Fleet) -> None:
    made = await mint(fleet, expires_in_seconds=60)
    assert await opens(fleet, made["key"])

    fleet.clock.move(59.9)
    await fleet.app.state.parts.keyring.refresh()
    assert await opens(fleet, made["key"])
    fleet.clock.move(0.1)
    await fleet.app.state.parts.keyring.refresh()

    assert not await opens(fleet, made["key"])
    listed = (await ask(fleet, "GET", "/v1/keys")).json()["keys"]
    assert {key["id"]: key["state"] for key in listed}[made["id"]] == "expired"


async def test_a_key_that_is_first_used_when_it_has_expired_opens_nothing(fleet: Fleet) -> None:
    made = await mint(fleet, expires_in_seconds=60)
    fleet.clock.move(60)

    assert not await opens(fleet, made["key"])


async def test_a_rotated_key_goes_on_for_the_overlap_and_its_successor_beyond(
    fleet: Fleet,
) -> None:
    old = await mint(fleet, name="edge")

    answer = await ask(fleet, "POST", f"/v1/keys/{old['id']}/rotate", {"overlap_seconds": 30})

    assert answer.status_code == 201, answer.text
    new = answer.json()
    assert (new["name"], new["scopes"]) == ("edge", ["read"])
    assert [await opens(fleet, key["key"]) for key in (old, new)] == [True, True]
    fleet.clock.move(30)
    await fleet.app.state.parts.keyring.refresh()
    assert [await opens(fleet, key["key"]) for key in (old, new)] == [False, True]


async def test_without_a_body_the_overlap_is_an_hour(fleet: Fleet) -> None:
    old = await mint(fleet)
    headers = await fleet.headers()

    answer = await fleet.http.post(f"/v1/keys/{old['id']}/rotate", headers=headers)

    assert answer.status_code == 201
    key = await fleet.store.find_key(old["id"])
    assert key is not None
    assert key.expires_at == fleet.clock.now() + 3600 * SECOND


async def test_rotating_lets_no_key_live_longer(fleet: Fleet) -> None:
    old = await mint(fleet, expires_in_seconds=10)

    await ask(fleet, "POST", f"/v1/keys/{old['id']}/rotate", {"overlap_seconds": 3600})

    key = await fleet.store.find_key(old["id"])
    assert key is not None
    assert key.expires_at == fleet.clock.now() + 10 * SECOND


@pytest.mark.parametrize(("asked", "lasts"), [({}, 86400), ({"expires_in_seconds": 60}, 60)])
async def test_a_successor_lasts_as_long_as_its_key_was_made_to(
    fleet: Fleet, asked: dict[str, int], lasts: int
) -> None:
    old = await mint(fleet, expires_in_seconds=86400)
    fleet.clock.move(3600)

    new = (await ask(fleet, "POST", f"/v1/keys/{old['id']}/rotate", asked)).json()

    assert new["created_at"] == old["created_at"] + 3600
    assert new["expires_at"] == new["created_at"] + lasts


@pytest.mark.parametrize("wrong", [{"expires_in_seconds": 0}, {"overlap_seconds": -1}])
async def test_a_wrong_rotation_names_its_field(fleet: Fleet, wrong: dict[str, int]) -> None:
    old = await mint(fleet)

    answer = await ask(fleet, "POST", f"/v1/keys/{old['id']}/rotate", wrong)

    problem = check_problem(answer, 422, "invalid_field")
    assert [error["field"] for error in problem["errors"]] == list(wrong)


async def test_a_key_that_is_revoked_is_not_rotated(fleet: Fleet) -> None:
    old = await mint(fleet)
    await ask(fleet, "DELETE", f"/v1/keys/{old['id']}")

    answer = await ask(fleet, "POST", f"/v1/keys/{old['id']}/rotate", {})

    check_problem(answer, 409, "not_active")


async def test_of_twenty_rotations_at_once_one_is_done(fleet: Fleet) -> None:
    old = await mint(fleet)
    path = f"/v1/keys/{old['id']}/rotate"

    answers = await asyncio.gather(*(ask(fleet, "POST", path, {}) for _ in range(20)))

    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(201), statuses.count(409)) == (1, 19)
    assert len(await fleet.store.keys("acme")) == 3


async def test_a_key_that_was_rotated_names_its_successor_and_is_not_rotated_again(
    fleet: Fleet,
) -> None:
    old = await mint(fleet)
    new = (await ask(fleet, "POST", f"/v1/keys/{old['id']}/rotate", {})).json()

    again = await ask(fleet, "POST", f"/v1/keys/{old['id']}/rotate", {})

    assert new["id"] in check_problem(again, 409, "not_active")["detail"]
    assert (await ask(fleet, "POST", f"/v1/keys/{new['id']}/rotate", {})).status_code == 201


async def test_a_key_with_more_than_the_caller_has_is_not_rotated(fleet: Fleet) -> None:
    admin = await fleet.key(scopes=["admin"])
    old = await mint(fleet)

    answer = await ask(fleet, "POST", f"/v1/keys/{old['id']}/rotate", {}, key=admin)

    check_problem(answer, 403, "missing_scope")


async def test_a_revoked_key_opens_nothing_and_says_so_in_the_list(fleet: Fleet) -> None:
    made = await mint(fleet)
    assert await opens(fleet, made["key"])

    assert (await ask(fleet, "DELETE", f"/v1/keys/{made['id']}")).status_code == 204
    await fleet.app.state.parts.keyring.refresh()

    assert not await opens(fleet, made["key"])


@pytest.mark.parametrize(("method", "rest"), [("DELETE", ""), ("POST", "/rotate")])
async def test_another_tenants_key_is_not_there(fleet: Fleet, method: str, rest: str) -> None:
    theirs = (await fleet.key("blue"))[3:11]

    check_problem(await ask(fleet, method, f"/v1/keys/{theirs}{rest}"), 404, "not_found")
    check_problem(await ask(fleet, method, f"/v1/keys/UNKNOWN2{rest}"), 404, "not_found")


async def test_the_use_of_keys_is_noted_in_one_write_for_all(fleet: Fleet) -> None:
    made = [await mint(fleet) for _ in range(3)]
    for key in made[:2]:
        for _ in range(5):
            await opens(fleet, key["key"])
    fleet.clock.move(1)

    await fleet.app.state.parts.keyring.note_used()

    listed = (await ask(fleet, "GET", "/v1/keys")).json()
    used = {key["id"]: key["last_used_at"] for key in listed["keys"]}
    assert used[made[0]["id"]] == used[made[1]["id"]] == fleet.clock.now() / SECOND
    assert used[made[2]["id"]] is None


async def test_everything_about_keys_is_audited(fleet: Fleet) -> None:
    made = await mint(fleet, name="console")
    successor = (await ask(fleet, "POST", f"/v1/keys/{made['id']}/rotate", {})).json()
    await ask(fleet, "DELETE", f"/v1/keys/{made['id']}")
    await ask(fleet, "DELETE", f"/v1/keys/{made['id']}")

    acts = (await ask(fleet, "GET", "/v1/audit")).json()["acts"]

    own = (await fleet.key())[3:11]
    told = [(act["action"], act["subject"], act["actor"]) for act in acts]
    assert told == [
        ("key.revoked", made["id"], own),
        ("key.rotated", made["id"], own),
        ("key.created", made["id"], own),
        ("key.created", own, "operator"),
    ]
    assert acts[1]["detail"]["successor"] == successor["id"]
    assert made["key"] not in str(acts)


async def test_the_audit_is_read_page_by_page_and_is_the_tenants_own(fleet: Fleet) -> None:
    for n in range(5):
        await mint(fleet, name=str(n))
    await fleet.key("blue")

    first = (await ask(fleet, "GET", "/v1/audit?limit=3")).json()
    rest = (await ask(fleet, "GET", f"/v1/audit?before={first['next_before']}")).json()

    ids = [act["id"] for act in (*first["acts"], *rest["acts"])]
    assert ids == sorted(ids, reverse=True)
    assert (len(first["acts"]), len(rest["acts"]), rest["next_before"]) == (3, 3, None)


async def test_a_removal_is_audited_with_who_did_it(fleet: Fleet) -> None:
    await fleet.beat("w")
    await ask(fleet, "DELETE", "/v1/agents/w")
    await ask(fleet, "DELETE", "/v1/agents/w")

    acts = (await ask(fleet, "GET", "/v1/audit")).json()["acts"]

    removed = [act for act in acts if act["action"] == "worker.removed"]
    assert [(act["subject"], act["detail"]) for act in removed] == [("w", {"workers": 1})]


# Removal in bulk


async def test_all_who_match_are_removed_after_a_preview(fleet: Fleet) -> None:
    for n in range(7):
        await fleet.beat(f"old-{n}", project="p")
    await fleet.beat("other", project="q")

    preview = (await ask(fleet, "DELETE", "/v1/agents?project=p&dry_run=true")).json()
    assert (preview["matched"], preview["removed"], preview["dry_run"]) == (7, 0, True)
    assert sorted(preview["agent_ids"]) == [f"old-{n}" for n in range(7)]
    assert len(await fleet.roster()) == 8

    done = (await ask(fleet, "DELETE", "/v1/agents?project=p")).json()

    assert (done["matched"], done["removed"]) == (7, 7)
    assert [worker["agent_id"] for worker in await fleet.roster()] == ["other"]
    events = await fleet.store.events("acme", after=0, limit=100)
    assert sum(event.type == "removed" for event in events) == 7


async def test_more_than_a_page_of_workers_is_removed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.removal.PAGE", 3)
    for n in range(10):
        await fleet.beat(f"w-{n}")

    done = (await ask(fleet, "DELETE", "/v1/agents?agent_name=reception")).json()

    assert (done["matched"], done["removed"]) == (10, 10)
    assert await fleet.roster() == []


async def test_unseen_for_finds_those_silent_for_longer(fleet: Fleet) -> None:
    await fleet.beat("old")
    fleet.clock.move(100)
    await fleet.beat("young")

    done = (await ask(fleet, "DELETE", "/v1/agents?unseen_for=60")).json()

    assert done["agent_ids"] == ["old"]


@pytest.mark.parametrize(
    "query", ["", "dry_run=true", "dry_run=yes&project=p", "colour=green", "unseen_for=x"]
)
async def test_a_removal_of_everybody_or_of_nobody_knows_whom_is_refused(
    fleet: Fleet, query: str
) -> None:
    await fleet.beat("w")

    check_problem(await ask(fleet, "DELETE", f"/v1/agents?{query}"), 422, "invalid_field")
    assert len(await fleet.roster()) == 1
