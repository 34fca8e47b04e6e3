"""`collector keys rotate`, `tenants`, `audit` and `agents remove`, as an operator runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import Serving, create_key, run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'collector.db'}"


def ask(url: str, *arguments: str) -> str:
    ran = run(*arguments, env={"COLLECTOR_STORE_URL": url})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_rotated_key_is_listed_with_its_end(url: str) -> None:
    old = create_key(url)

    new = json.loads(ask(url, "keys", "rotate", old["key"], "--overlap", "1d", "--json"))

    listed = {key["id"]: key for key in json.loads(ask(url, "keys", "list", "--json"))}
    assert listed[old["id"]]["expires_at"] == pytest.approx(new["created_at"] + 86400)
    assert (listed[new["id"]]["expires_at"], listed[new["id"]]["state"]) == (None, "active")
    assert new["scopes"] == old["scopes"]


def test_a_key_may_be_made_to_expire(url: str) -> None:
    made = json.loads(
        ask(
            *(url, "keys", "create", "--tenant", "acme", "--scopes", "read"),
            *("--expires-in", "90d", "--json"),
        )
    )

    assert made["expires_at"] == pytest.approx(made["created_at"] + 90 * 86400)


@pytest.mark.parametrize(
    ("asked", "lasts"), [((), 90 * 86400), (("--expires-in", "1d"), 86400)], ids=["same", "other"]
)
def test_a_successor_lasts_as_long_as_its_key_or_as_is_said(
    url: str, asked: tuple[str, ...], lasts: int
) -> None:
    old = json.loads(
        ask(
            *(url, "keys", "create", "--tenant", "acme", "--scopes", "read"),
            *("--expires-in", "90d", "--json"),
        )
    )

    new = json.loads(ask(url, "keys", "rotate", old["id"], *asked, "--json"))

    assert new["expires_at"] == pytest.approx(new["created_at"] + lasts)


def test_a_key_is_rotated_once(url: str) -> None:
    old = create_key(url)
    new = json.loads(ask(url, "keys", "rotate", old["id"], "--json"))

    ran = run("keys", "rotate", old["id"], env={"COLLECTOR_STORE_URL": url})

    assert ran.returncode == 4
    assert new["id"] in ran.stderr


@pytest.mark.parametrize("state", ["unknown", "revoked"])
def test_a_key_that_can_not_be_rotated_is_told(url: str, state: str) -> None:
    key = create_key(url)
    if state == "revoked":
        ask(url, "keys", "revoke", key["id"])

    ran = run(
        "keys",
        "rotate",
        key["id"] if state == "revoked" else "AAAAAAAA",
        env={"COLLECTOR_STORE_URL": url},
    )

    assert ran.returncode == (4 if state == "revoked" else 1)
    assert "keys create" in ran.stderr or "keys list" in ran.stderr


def test_tenants_are_listed_shown_and_removed_with_all_they_have(url: str) -> None:
    for tenant in ("acme", "blue"):
        create_key(url, tenant)
    assert [each["tenant"] for each in json.loads(ask(url, "tenants", "list", "--json"))] == [
        "acme",
        "blue",
    ]
    assert json.loads(ask(url, "tenants", "show", "acme", "--json"))["keys"] == 1

    refused = run("tenants", "remove", "acme", env={"COLLECTOR_STORE_URL": url}, answer="n\n")
    removed = ask(url, "tenants", "remove", "acme", "--yes")

    assert refused.returncode == 1
    assert "1 keys" in removed
    assert [each["tenant"] for each in json.loads(ask(url, "tenants", "list", "--json"))] == [
        "blue"
    ]
    (act,) = json.loads(ask(url, "audit", "--tenant", "acme", "--json"))
    assert (act["action"], act["actor"], act["detail"]["keys"]) == ("tenant.removed", "operator", 1)


@pytest.mark.parametrize("is_revoked", [False, True])
def test_a_removed_tenants_key_is_refused_by_a_running_collector(
    url: str, tmp_path: Path, is_revoked: bool
) -> None:
    key = create_key(url, "acme", "ingest,read")["key"]
    with Serving(url, tmp_path) as serving:
        asked = {"VOICEGW_COLLECTOR_URL": serving.url, "VOICEGW_API_KEY": key}
        assert run("beat", "w", "--name", "n", env=asked).returncode == 0

        if is_revoked:
            ask(url, "keys", "revoke", key)
        ask(url, "tenants", "remove", "acme", "--yes")

        assert run("beat", "w", "--name", "n", env=asked).returncode == 4
        assert json.loads(ask(url, "tenants", "list", "--json")) == []


def test_the_audit_tells_who_did_what(url: str) -> None:
    key = create_key(url)
    ask(url, "keys", "revoke", key["id"])

    told = ask(url, "audit", "--tenant", "acme")

    assert "key.revoked" in told
    assert "key.created" in told
    assert key["key"] not in told


def test_workers_are_removed_by_filter_after_a_preview(url: str, tmp_path: Path) -> None:
    key = create_key(url, "acme", "ingest,read,admin")["key"]
    with Serving(url, tmp_path) as serving:
        asked = {"VOICEGW_COLLECTOR_URL": serving.url, "VOICEGW_API_KEY": key}
        for name, project in (("a", "p"), ("b", "p"), ("c", "q")):
            run("beat", name, "--name", "n", "--project", project, env=asked)

        preview = run("agents", "remove", "--project", "p", "--dry-run", env=asked)
        unsaid = run("agents", "remove", env=asked)
        refused = run("agents", "remove", "--project", "p", env=asked, answer="n\n")
        removed = run("agents", "remove", "--project", "p", "--yes", env=asked)
        left = json.loads(run("agents", "list", "--json", env=asked).stdout)["workers"]

    assert "2 would be removed." in preview.stdout
    assert (unsaid.returncode, refused.returncode) == (2, 1)
    assert "2 removed." in removed.stdout
    assert [worker["agent_id"] for worker in left] == ["c"]
