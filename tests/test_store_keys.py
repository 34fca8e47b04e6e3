"""Keys at rest; the same on every store."""

from __future__ import annotations

import asyncio
from typing import Any

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


async def test_of_twenty_keys_with_one_id_the_first_is_kept(store: Store) -> None:
    attempts = [key(tenant_id=f"tenant-{n}") for n in range(20)]

    kept = await asyncio.gather(*(store.add_key(each) for each in attempts))

    assert kept.count(True) == 1
    assert await store.keys(None) == [attempts[kept.index(True)]]


async def test_a_revoked_key_stays_revoked_at_its_first_time(store: Store) -> None:
    await store.add_key(key())

    assert await store.revoke_key("ABCDEFGH", now=at(1))
    assert await store.revoke_key("ABCDEFGH", now=at(2))

    found = await store.find_key("ABCDEFGH")
    assert found is not None
    assert found.revoked_at == at(1)


async def test_revoking_an_unknown_key_is_false(store: Store) -> None:
    assert await store.revoke_key("unknown", now=at(1)) is False


async def test_the_revision_says_which_keys_changed(store: Store) -> None:
    await store.add_key(key("AAAAAAAA"))
    before = await store.key_changes(since=0)
    await store.add_key(key("BBBBBBBB"))
    await store.revoke_key("AAAAAAAA", now=at(1))

    after = await store.key_changes(since=before.revision)

    assert (before.changed, before.revoked) == (frozenset({"AAAAAAAA"}), frozenset())
    assert sorted(after.changed) == ["AAAAAAAA", "BBBBBBBB"]
    assert list(after.revoked) == ["AAAAAAAA"]
    assert not (await store.key_changes(since=after.revision)).changed
