"""What a store says of some tenants, read whole to be compared whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from collector.store.protocol import Store
from collector.values import Event, Key, RosterQuery, Spell, Worker

MANY = 1_000_000


class View(NamedTuple):
    rosters: dict[str, list[Worker]]
    logs: dict[str, list[Event]]
    spells: dict[tuple[str, str], list[Spell]]


async def view(store: Store, tenants: Sequence[str], places: Iterable[tuple[str, str]]) -> View:
    """All workers and lines of the tenants, and the spells at the places."""
    logs, rosters, spells = await asyncio.gather(
        store.news(dict.fromkeys(tenants, 0), limit=MANY),
        asyncio.gather(*(store.roster(tenant, RosterQuery(), now=0) for tenant in tenants)),
        _spells(store, places),
    )
    return View(dict(zip(tenants, rosters, strict=True)), logs, spells)


async def keys_of(store: Store, tenants: Sequence[str]) -> list[Key]:
    """The tenants' among everybody's, oldest first; those of one moment come in any order."""
    keys = [key for key in await store.keys(None) if key.tenant_id in tenants]
    assert keys == sorted(keys, key=lambda key: key.created_at)
    return sorted(keys, key=lambda key: (key.created_at, key.id))


async def acts_of(store: Store, tenants: Sequence[str]) -> list[tuple[object, ...]]:
    """What was done in the tenants, newest first; ids are each store's own."""
    acts = [await store.audit(tenant, before=None, limit=MANY) for tenant in tenants]
    return [act[1:] for of_tenant in acts for act in of_tenant]


def last_of_each(spells: Iterable[Spell]) -> list[Spell]:
    """Of spells that began with the same stamp the last: no promise tells them apart."""
    return list({spell.online_from: spell for spell in spells}.values())


async def _spells(
    store: Store, places: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], list[Spell]]:
    return {place: last_of_each(await store.spells(*place, since=0)) for place in places}
