"""Keys at rest; the same on every store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from collector.errors import NotActive, QuotaExceeded, Unauthenticated
from collector.store.protocol import Store
from collector.values import Key
from tests.factories import at


def key(key_id: str = "ABCDEFGH", **fields: Any) -> Key:
    row: dict[str, Any] = {
        "id": key_id,
        "tenant_id": "acme",
        "name": None,
        "digest": "$argon2id$",
        "scopes": ("ingest", "read"),
        "created_at": at(0),
        "revoked_at": None,
    }
    return Key(**{**row, **fields})


async def test_a_key_comes_back_as_it_was(store: Store) -> None:
    minted = key(name="edge ü", scopes=("admin",))

    assert await store.add_key(minted)

    assert await store.find_key(minted.id) == minted
    assert await store.keys("acme") == [minted]
    assert await store.keys("blue") == []
    assert await store.find_key("unknown") is None


async def test_many_keys_are_found_at_once(store: Store) -> None:
    minted = [key(id=f"KEY{n:05}") for n in range(300)]
    for each in minted[:3]:
        await store.add_key(each)

    found = await store.find_keys([each.id for each in minted])

    assert found == {each.id: each for each in minted[:3]}
    assert await store.find_keys([]) == {}


async def test_of_twenty_keys_with_one_id_the_first_is_kept(store: Store) -> None:
    attempts = [key(tenant_id=f"tenant-{n}") for n in range(20)]

    kept = await asyncio.gather(*(store.add_key(each) for each in attempts))

    assert kept.count(True) == 1
    assert await store.keys(None) == [attempts[kept.index(True)]]


async def test_a_revoked_key_stays_revoked_at_its_first_time(store: Store) -> None:
    await store.add_key(key())

    assert await store.revoke_key("acme", "ABCDEFGH", now=at(1))
    assert await store.revoke_key("acme", "ABCDEFGH", now=at(2))

    found = await store.find_key("ABCDEFGH")
    assert found is not None
    assert found.revoked_at == at(1)


async def test_another_tenants_key_is_not_revoked_and_nothing_is_audited(store: Store) -> None:
    await store.add_key(key())

    assert await store.revoke_key("blue", "ABCDEFGH", now=at(1)) is False

    found = await store.find_key("ABCDEFGH")
    assert found is not None
    assert found.revoked_at is None
    assert await store.audit("blue", before=None, limit=9) == []
    assert [act.action for act in await store.audit("acme", before=None, limit=9)] == [
        "key.created"
    ]


async def test_revoking_an_unknown_key_is_false(store: Store) -> None:
    assert await store.revoke_key("acme", "unknown", now=at(1)) is False


async def rotated(store: Store, key_id: str, successor_id: str, **asked: Any) -> bool:
    """That key replaced 10 s after the start, to end 60 s after it."""
    successor = key(successor_id, created_at=at(10))
    return await store.replace_key(key_id, successor, **{"expires_at": at(60), **asked})


async def test_a_key_that_is_replaced_ends_and_names_its_successor(store: Store) -> None:
    await store.add_key(key("AAAAAAAA"))

    assert await rotated(store, "AAAAAAAA", "BBBBBBBB")

    old, new = await store.keys("acme")
    assert (old.expires_at, old.successor_id) == (at(60), "BBBBBBBB")
    assert (new.id, new.expires_at, new.successor_id) == ("BBBBBBBB", None, None)


async def test_the_changes_say_when_a_replaced_key_ends(store: Store) -> None:
    await store.add_key(key("AAAAAAAA"))
    await store.add_key(key("CCCCCCCC", expires_at=at(99)))
    await rotated(store, "AAAAAAAA", "BBBBBBBB")
    rotation = await store.key_changes(since=-1)
    await store.revoke_key("acme", "AAAAAAAA", now=at(20))

    revocation = await store.key_changes(since=-1)

    assert (rotation.ends, rotation.revoked) == ({"AAAAAAAA": at(60)}, frozenset())
    assert not revocation.ends
    assert revocation.revoked == {"AAAAAAAA"}


async def test_a_key_with_an_end_of_its_own_is_replaced_too(store: Store) -> None:
    await store.add_key(key("AAAAAAAA", expires_at=at(30)))

    assert await rotated(store, "AAAAAAAA", "BBBBBBBB")

    old, _ = await store.keys("acme")
    assert (old.expires_at, old.successor_id) == (at(30), "BBBBBBBB")


async def test_of_twenty_rotations_at_once_one_is_done(store: Store) -> None:
    await store.add_key(key("AAAAAAAA"))

    outcomes = await asyncio.gather(
        *(rotated(store, "AAAAAAAA", f"BBBBBBB{n}") for n in range(20)), return_exceptions=True
    )

    assert outcomes.count(True) == 1
    assert sum(isinstance(outcome, NotActive) for outcome in outcomes) == 19
    assert len(await store.keys("acme")) == 2
    acts = await store.audit("acme", before=None, limit=50)
    assert [act.action for act in acts] == ["key.rotated", "key.created"]


@pytest.mark.parametrize(
    "fields",
    [{"revoked_at": at(5)}, {"expires_at": at(10)}, {"tenant_id": "blue"}, {"key_id": "CCCCCCCC"}],
)
async def test_what_is_not_active_in_the_tenant_is_not_replaced(
    store: Store, fields: dict[str, Any]
) -> None:
    await store.add_key(key(**{"key_id": "AAAAAAAA", **fields}))
    before = await store.keys(None)

    with pytest.raises(NotActive):
        await rotated(store, "AAAAAAAA", "BBBBBBBB")

    assert await store.keys(None) == before


async def test_of_twenty_keys_made_at_once_as_many_are_kept_as_may_be(store: Store) -> None:
    attempts = [key(f"AAAAAA{n:02}") for n in range(20)]

    outcomes = await asyncio.gather(
        *(store.add_key(each, most=3) for each in attempts), return_exceptions=True
    )

    assert outcomes.count(True) == 3
    assert sum(isinstance(outcome, QuotaExceeded) for outcome in outcomes) == 17
    assert await store.active_keys("acme", now=at(0)) == 3


async def test_a_key_that_goes_on_beside_its_successor_counts(store: Store) -> None:
    await store.add_key(key("AAAAAAAA"))
    await store.add_key(key("CCCCCCCC", revoked_at=at(1)))

    with pytest.raises(QuotaExceeded):
        await rotated(store, "AAAAAAAA", "BBBBBBBB", most=1)
    assert await rotated(store, "AAAAAAAA", "BBBBBBBB", most=1, expires_at=at(10))

    assert await store.active_keys("acme", now=at(10)) == 1


@pytest.mark.parametrize("fields", [{"revoked_at": at(-1)}, {"expires_at": at(0)}])
async def test_a_key_that_has_ended_makes_no_other(store: Store, fields: dict[str, Any]) -> None:
    await store.add_key(key("AAAAAAAA", **fields))

    for actor in ("AAAAAAAA", "UNKNOWN2"):
        with pytest.raises(Unauthenticated):
            await store.add_key(key("BBBBBBBB"), by=actor)

    assert await store.find_key("BBBBBBBB") is None


async def test_more_keys_are_noted_as_used_than_one_statement_takes(store: Store) -> None:
    await store.add_key(key("AAAAAAAA"))
    await store.add_key(key("ZZZZZZZZ"))
    used = {f"{n:08}" for n in range(40_000)} | {"AAAAAAAA", "ZZZZZZZZ"}

    await store.use_keys(used, now=at(1))

    assert [each.last_used_at for each in await store.keys("acme")] == [at(1), at(1)]


async def test_the_revision_says_which_keys_changed(store: Store) -> None:
    await store.add_key(key("AAAAAAAA"))
    before = await store.key_changes(since=0)
    await store.add_key(key("BBBBBBBB"))
    await store.revoke_key("acme", "AAAAAAAA", now=at(1))

    after = await store.key_changes(since=before.revision)

    assert (before.changed, before.revoked) == (frozenset({"AAAAAAAA"}), frozenset())
    assert sorted(after.changed) == ["AAAAAAAA", "BBBBBBBB"]
    assert list(after.revoked) == ["AAAAAAAA"]
    assert not (await store.key_changes(since=after.revision)).changed
