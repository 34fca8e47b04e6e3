"""The fleets that benchmarks beat with are the ones that they put into a store."""

from __future__ import annotations

from pathlib import Path

from benchmarks.crowd import admit, fill
from benchmarks.fleet import SCATTERED, Fleet, muster, numbered, strangers
from collector.keys import Keyring
from collector.metrics import Metrics
from collector.store.protocol import Store
from collector.values import RosterQuery
from tests.fleet import TestClock


def test_a_fleet_is_read_as_it_was_written(tmp_path: Path) -> None:
    fleet = strangers(tenants=3, workers=100, beating=10, stride=7)

    fleet.write(tmp_path / "fleet")

    assert Fleet.read(tmp_path / "fleet") == fleet


def test_a_scattered_fleet_beats_everywhere_and_nobody_twice() -> None:
    fleet = strangers(tenants=50, workers=1_000_000, beating=10_000, stride=SCATTERED)

    numbers = list(fleet.numbers())

    assert len(set(numbers)) == 10_000
    assert len({n // 10_000 for n in numbers}) == 100
    assert len({fleet.tenant(n) for n in numbers}) == 50


async def test_who_is_mustered_was_in_the_store_already(store: Store, clock: TestClock) -> None:
    fleet = strangers(tenants=2, workers=30, beating=10, stride=7)
    await fill(store, fleet)

    await muster(store, fleet)

    rosters = [
        await store.roster(fleet.tenant(n), RosterQuery(), now=clock.now()) for n in range(2)
    ]
    assert [len(roster) for roster in rosters] == [15, 15]
    here = {each.agent_id for roster in rosters for each in roster if each.reported == "online"}
    assert here == {numbered("agent_id", n) for n in fleet.numbers()}


async def test_a_cheap_key_opens_what_a_dear_one_does(store: Store, clock: TestClock) -> None:
    fleet = await admit(store, strangers(tenants=2))
    keyring = Keyring(store, clock, Metrics(), verifiers=1)

    principals = [await keyring.identify(key) for key in fleet.keys]

    await keyring.close()
    assert [each.tenant_id for each in principals] == [fleet.tenant(0), fleet.tenant(1)]
    assert {scope for each in principals for scope in each.scopes} == {"ingest", "read"}
