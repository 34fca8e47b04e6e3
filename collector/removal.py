"""Removal in bulk: everybody who matches, page by page."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collector.store.protocol import Store
from collector.values import Act, RosterQuery, Walk

PAGE = 500
# How many of them the answer names.
NAMED = 100


@dataclass(frozen=True, slots=True)
class Removal:
    """Who matched, the first of them by name, and how many are gone."""

    matched: int
    removed: int
    agent_ids: list[str]


async def remove(
    store: Store, tenant_id: str, query: RosterQuery, *, now: int, act: Act | None
) -> Removal:
    """Remove the tenant's workers that match at `now`; without an act only count them.

    One that beats meanwhile stays.
    """
    matched, removed, named = 0, 0, list[str]()
    walk: Walk | None = None
    while True:
        page = await store.roster(tenant_id, replace(query, limit=PAGE, after=walk), now=now)
        names = [worker.agent_id for worker in page]
        matched += len(names)
        named += names[: NAMED - len(named)]
        if names and act is not None:
            removed += await store.remove(tenant_id, names, now=now, before=now + 1, act=act)
        if len(page) < PAGE:
            return Removal(matched, removed, named)
        walk = Walk(now, page[-1].first_seen, page[-1].agent_id)
