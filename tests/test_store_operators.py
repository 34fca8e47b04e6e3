"""What operators do to whole tenants; the same on every store."""

from __future__ import annotations

from collector.store.protocol import Store
from collector.values import Act, Session
from tests.factories import at, beat
from tests.test_store_keys import key
from tests.test_store_log import commit


async def test_tenants_are_those_with_a_key_or_a_worker(store: Store) -> None:
    await store.add_key(key(tenant_id="keyed"))
    await store.add_key(key("BBBBBBBB", tenant_id="keyed"))
    await store.revoke_key("keyed", "BBBBBBBB", now=at(1))
    await commit(store, beat(tenant_id="working", seconds=3))

    assert [tuple(each) for each in await store.tenants(now=at(9))] == [
        ("keyed", 0, None, 1),
        ("working", 1, at(3), 0),
    ]


async def test_a_tenant_is_removed_with_everything_and_nobody_elses(store: Store) -> None:
    for tenant, key_id in (("acme", "AAAAAAAA"), ("blue", "BBBBBBBB")):
        await store.add_key(key(key_id, tenant_id=tenant))
        signed_in = Session(f"{tenant}-digest", tenant, tenant, key_id, "curl", at(0), at(60))
        await store.add_session(signed_in, most=1)
        await commit(store, beat("a", tenant_id=tenant), beat("b", tenant_id=tenant))
        await commit(store, beat("a", tenant_id=tenant, seconds=1, status="offline"))
    held = await store.holdings("acme")

    gone = await store.remove_tenant("acme", now=at(5))

    assert (
        gone
        == held
        == {
            "workers": 2,
            "keys": 1,
            "sessions": 1,
            "events": 3,
            "spells": 1,
            "audit": 1,
        }
    )
    assert [each.tenant_id for each in await store.tenants(now=at(9))] == ["blue"]
    assert (await store.holdings("blue")) == held
    assert (await store.position("acme"))[1:] == (5, 4)
    (act,) = await store.audit("acme", before=None, limit=10)
    assert (act.action, act.subject, act.at) == ("tenant.removed", "acme", at(5))
    assert act.detail == gone


async def test_locking_a_tenant_out_revokes_its_keys_alone(store: Store) -> None:
    await store.add_key(key("AAAAAAAA", tenant_id="acme"))
    await store.add_key(key("BBBBBBBB", tenant_id="blue"))
    before = (await store.key_changes(since=-1)).revision

    assert await store.lock_out("acme", now=at(1)) == 1

    assert (await store.key_changes(since=before)).revoked == {"AAAAAAAA"}
    assert await store.lock_out("acme", now=at(2)) == 0
    acts = await store.audit("acme", before=None, limit=10)
    assert [(act.action, act.subject, act.at) for act in acts] == [
        ("key.revoked", "AAAAAAAA", at(1)),
        ("key.created", "AAAAAAAA", at(0)),
    ]


async def test_a_removed_tenants_keys_are_told_as_revoked_and_never_given_out_again(
    store: Store,
) -> None:
    await store.add_key(key("AAAAAAAA", name="edge"))
    before = (await store.key_changes(since=-1)).revision

    await store.remove_tenant("acme", now=at(5))

    assert (await store.key_changes(since=before)).revoked == {"AAAAAAAA"}
    assert await store.find_key("AAAAAAAA") is None
    assert (await store.keys("acme"), await store.keys(None)) == ([], [])
    assert await store.add_key(key("AAAAAAAA", tenant_id="blue")) is False
    assert await store.revoke_key("acme", "AAAAAAAA", now=at(6)) is False
    assert await store.holdings("acme") == {
        "workers": 0,
        "keys": 0,
        "sessions": 0,
        "events": 0,
        "spells": 0,
        "audit": 1,
    }


async def test_the_log_of_a_tenant_made_anew_goes_on_above_the_old_one(store: Store) -> None:
    await commit(store, beat("a"), beat("b"))
    await store.remove_tenant("acme", now=at(5))

    await commit(store, beat("c", seconds=6))

    (line,) = await store.events("acme", after=0, limit=10)
    assert (line.n, line.agent_id) == (4, "c")
    assert (await store.position("acme"))[1:] == (4, 4)


async def test_live_workers_are_those_who_beat_and_did_not_leave(store: Store) -> None:
    await commit(store, beat("a"), beat("b"), beat("c", tenant_id="blue"))
    await commit(store, beat("b", seconds=1, status="offline"))

    assert await store.live_workers(now=at(45)) == {"acme": 1, "blue": 1}
    assert await store.live_workers(now=at(45.000001)) == {}


async def test_only_those_below_the_stamp_are_removed(store: Store) -> None:
    await commit(store, beat("a"), beat("b", seconds=10))
    act = Act("workers.removed", "project=p", "KEYKEYKE")

    removed = await store.remove("acme", ["a", "b", "nobody"], now=at(10), before=at(10), act=act)

    assert removed == 1
    (told,) = await store.audit("acme", before=None, limit=10)
    assert (told.actor, told.action, told.subject) == ("KEYKEYKE", "workers.removed", "project=p")
    assert told.detail == {"workers": 1}


async def test_what_removes_nobody_is_not_audited(store: Store) -> None:
    await store.remove("acme", ["nobody"], now=at(1), act=Act("worker.removed", "nobody"))

    assert await store.audit("acme", before=None, limit=10) == []
