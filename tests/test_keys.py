"""The keyring: who a presented key belongs to, at what cost."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Collection

import pytest

from collector import keys
from collector.errors import Overloaded, StoreUnavailable, Unauthenticated
from collector.keys import MAX_UNVERIFIED_SAME_ID, Keyring
from collector.metrics import Metrics
from collector.store.cloud import CloudStore
from collector.store.protocol import Store
from collector.values import SECOND, Key, Principal
from tests.digests import DEAR
from tests.fleet import TestClock


class Counted:
    """A keyring that tells how often argon2 ran."""

    def __init__(self, store: Store, clock: TestClock) -> None:
        self.metrics = Metrics()
        self.ring = Keyring(store, clock, self.metrics, verifiers=2)

    @property
    def runs(self) -> float | None:
        return self.metrics.registry.get_sample_value("collector_argon2_runs_total")


@pytest.fixture
async def counted(store: Store, clock: TestClock) -> AsyncIterator[Counted]:
    made = Counted(store, clock)
    await made.ring.open()
    yield made
    await made.ring.close()


async def minted(store: Store) -> str:
    _, plaintext = await keys.create(store, "acme", ["read", "ingest"], now=0)
    return plaintext


def wrong_twin(plaintext: str) -> str:
    """Another key with the same public part."""
    return plaintext[:-1] + ("A" if plaintext[-1] != "A" else "B")


def test_a_minted_key_has_the_form_and_only_its_hash_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keys, "_hasher", DEAR)
    key, plaintext = keys.mint("acme", ["read", "ingest"], now=5, name="edge")

    assert re.fullmatch(r"vk_[A-Z2-7]{32}", plaintext)
    assert key.id == plaintext[3:11]
    assert key.scopes == ("ingest", "read")
    assert key.digest.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert plaintext[11:] not in repr(key)


async def test_a_right_key_says_whose_it_is(store: Store, counted: Counted) -> None:
    plaintext = await minted(store)

    who = await counted.ring.identify(plaintext)

    assert who == Principal("acme", frozenset({"ingest", "read"}), plaintext[3:11])


@pytest.mark.parametrize(
    "presented", ["", "vk_", "vk_" + "a" * 32, "vk_" + "A" * 33, "sk_" + "A" * 32, "vk_" + "é" * 32]
)
async def test_what_is_no_key_costs_neither_row_nor_argon2(
    counted: Counted, presented: str
) -> None:
    with pytest.raises(Unauthenticated):
        await counted.ring.identify(presented)

    assert counted.runs == 0


async def test_an_unknown_key_costs_no_argon2(counted: Counted) -> None:
    with pytest.raises(Unauthenticated):
        await counted.ring.identify("vk_" + "A" * 32)

    assert counted.runs == 0


async def test_a_hundred_first_uses_of_a_key_at_once_run_argon2_once(
    store: Store, counted: Counted
) -> None:
    plaintext = await minted(store)

    found = await asyncio.gather(*(counted.ring.identify(plaintext) for _ in range(100)))
    await counted.ring.identify(plaintext)

    assert len(set(found)) == 1
    assert counted.runs == 1


async def test_a_wrong_key_is_remembered_for_ten_seconds(
    store: Store, counted: Counted, clock: TestClock
) -> None:
    wrong = wrong_twin(await minted(store))
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await counted.ring.identify(wrong)
    assert counted.runs == 1

    clock.move(10)
    with pytest.raises(Unauthenticated):
        await counted.ring.identify(wrong)

    assert counted.runs == 2


async def test_another_secret_of_a_known_key_costs_no_argon2(
    store: Store, counted: Counted
) -> None:
    plaintext = await minted(store)
    await counted.ring.identify(plaintext)

    with pytest.raises(Unauthenticated):
        await counted.ring.identify(wrong_twin(plaintext))

    assert counted.runs == 1
    assert (await counted.ring.identify(plaintext)).tenant_id == "acme"


async def test_a_key_that_had_to_make_room_is_verified_anew(
    store: Store, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "CACHED_KEYS", 1)
    plaintext, other = await minted(store), await minted(store)
    await counted.ring.identify(plaintext)
    await counted.ring.identify(other)

    with pytest.raises(Unauthenticated):
        await counted.ring.identify(wrong_twin(plaintext))
    await counted.ring.identify(plaintext)

    assert counted.runs == 4


async def test_who_verified_a_wrong_secret_rests(
    store: Store, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr("collector.keys.time.sleep", rests.append)
    plaintext = await minted(store)

    with pytest.raises(Unauthenticated):
        await counted.ring.identify(wrong_twin(plaintext))
    assert [rest > 0 for rest in rests] == [True]

    await counted.ring.identify(plaintext)
    assert len(rests) == 1


async def test_guessing_at_one_key_is_bounded_and_others_still_come_in(
    store: Store, counted: Counted
) -> None:
    known, other = await minted(store), await minted(store)
    guesses = [known[:-2] + a + b for a in "ABCDEFGH" for b in "ABCDEFGH" if known[-2:] != a + b]

    attempts = [asyncio.create_task(counted.ring.identify(guess)) for guess in guesses]
    await asyncio.sleep(0)
    who = await counted.ring.identify(other)
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)

    assert who.key_id == other[3:11]
    turned_away = sum(isinstance(outcome, Overloaded) for outcome in outcomes)
    assert turned_away == len(guesses) - MAX_UNVERIFIED_SAME_ID


async def test_a_revoked_key_is_refused_after_the_next_poll(store: Store, counted: Counted) -> None:
    plaintext, kept = await minted(store), await minted(store)
    await counted.ring.refresh()
    await counted.ring.identify(plaintext)
    await counted.ring.identify(kept)

    await store.revoke_key("acme", plaintext[3:11], now=0)
    await counted.ring.refresh()

    with pytest.raises(Unauthenticated):
        await counted.ring.identify(plaintext)
    await counted.ring.identify(kept)
    assert counted.runs == 2


@pytest.mark.parametrize("is_revoked", [False, True])
async def test_a_removed_tenants_key_is_refused_after_the_next_poll(
    store: Store, counted: Counted, is_revoked: bool
) -> None:
    plaintext = await minted(store)
    await counted.ring.identify(plaintext)

    if is_revoked:
        await store.revoke_key("acme", plaintext[3:11], now=0)
    await store.remove_tenant("acme", now=0)
    await counted.ring.refresh()

    with pytest.raises(Unauthenticated):
        await counted.ring.identify(plaintext)


async def test_a_key_ends_in_time_also_while_the_store_is_away(
    store: Store, counted: Counted, clock: TestClock
) -> None:
    ends_at = clock.now() + 60 * SECOND
    _, plaintext = await keys.create(store, "acme", ["read"], now=clock.now(), expires_at=ends_at)
    await counted.ring.identify(plaintext)

    await store.close()
    clock.move(59.999999)
    await counted.ring.identify(plaintext)
    clock.move(0.000001)

    with pytest.raises(Unauthenticated):
        await counted.ring.identify(plaintext)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_key_that_is_new_to_us_is_judged_by_the_time_of_the_beat(
    store: Store, counted: Counted, clock: TestClock, is_busy: bool
) -> None:
    stamp = clock.now()
    ends_at = stamp + SECOND
    _, plaintext = await keys.create(store, "acme", ["ingest"], now=stamp, expires_at=ends_at)
    other = await minted(store)
    clock.move(1)

    busy = [counted.ring.identify(other)] if is_busy else []
    who, *_ = await asyncio.gather(counted.ring.identify(plaintext, at=stamp), *busy)

    assert who.key_id == plaintext[3:11]
    with pytest.raises(Unauthenticated):
        await counted.ring.identify(plaintext, at=ends_at)


async def test_a_key_revoked_while_it_is_verified_is_refused(
    store: Store, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, revoked = keys._matches, threading.Event()

    def matches(digest: str, presented: str) -> bool:
        return revoked.wait(20) and honest(digest, presented)

    monkeypatch.setattr(keys, "_matches", matches)
    plaintext = await minted(store)
    under_way = asyncio.create_task(counted.ring.identify(plaintext))
    while not counted.runs:
        await asyncio.sleep(0)

    await store.revoke_key("acme", plaintext[3:11], now=0)
    await counted.ring.refresh()
    revoked.set()

    with pytest.raises(Unauthenticated):
        await under_way


async def test_keys_are_made_off_the_loop_and_only_so_many_may_wait(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MAX_MINTING", 2)
    loop, made_by = threading.current_thread().name, []

    def minting() -> tuple[Key, str]:
        made_by.append(threading.current_thread().name)
        return keys.mint("acme", ["read"], now=0)

    outcomes = await asyncio.gather(
        *(counted.ring.mint(minting) for _ in range(3)), return_exceptions=True
    )

    assert [isinstance(outcome, Overloaded) for outcome in outcomes] == [False, False, True]
    assert len(made_by) == 2
    assert loop not in made_by
    await counted.ring.mint(minting)


async def test_a_use_that_could_not_be_noted_is_noted_the_next_time(
    store: Store, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")

    plaintext = await minted(store)
    await counted.ring.identify(plaintext)
    with monkeypatch.context() as patched:
        patched.setattr(store, "use_keys", away)
        with pytest.raises(StoreUnavailable):
            await counted.ring.note_used()

    await counted.ring.note_used()

    (key,) = await store.keys("acme")
    assert key.last_used_at is not None


async def test_a_caller_that_goes_away_does_not_cancel_the_others(
    store: Store, counted: Counted
) -> None:
    plaintext = await minted(store)
    leaving = asyncio.create_task(counted.ring.identify(plaintext))
    staying = asyncio.create_task(counted.ring.identify(plaintext))
    while not counted.runs:
        await asyncio.sleep(0)

    leaving.cancel()

    assert (await staying).tenant_id == "acme"


async def test_a_store_that_fails_is_not_remembered_as_a_wrong_key(clock: TestClock) -> None:
    nobody_listens = CloudStore("postgresql://postgres@127.0.0.1:1/postgres")
    counted = Counted(nobody_listens, clock)

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await counted.ring.identify("vk_" + "A" * 32)

    await counted.ring.close()
    await nobody_listens.close()


async def test_unknown_keys_that_come_together_are_one_look_up(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    store = counted.ring._store
    honest = store.find_keys

    async def counting(key_ids: Collection[str]) -> dict[str, Key]:
        asked.append(len(key_ids))
        return await honest(key_ids)

    monkeypatch.setattr(store, "find_keys", counting)
    strangers = ["vk_" + letter * 32 for letter in "ABCDEF"]
    refused = await asyncio.gather(
        *(counted.ring.identify(each) for each in (*strangers, *strangers)), return_exceptions=True
    )

    assert all(isinstance(each, Unauthenticated) for each in refused)
    assert asked == [6]
