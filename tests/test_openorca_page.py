"""The feed in a real browser, on a page that does what the OpenOrca console does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from collector.store.protocol import Store
from tests.browser import Screen, chromium
from tests.fleet import Fleet, TestClock
from tests.proxy import Proxy
from tests.test_openorca import fall_silent


@pytest.fixture
async def screen() -> AsyncIterator[Screen]:
    """A page of a real chromium."""
    async with chromium() as browser:
        yield Screen(await browser.new_page(viewport={"width": 1200, "height": 400}))


def seen(name: str) -> str:
    return f"[data-testid={name}]"


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy.before("openorca.html") as running:
        yield running


@asynccontextmanager
async def collecting(store: Store, clock: TestClock, proxy: Proxy) -> AsyncIterator[Fleet]:
    """A collector behind the proxy, from its start to its orderly stop."""
    async with (
        Fleet.over(store, clock) as fleet,
        proxy.leading_to(fleet.url, await fleet.key(scopes=["read"])),
    ):
        try:
            yield fleet
        finally:
            fleet.app.state.parts.feed.stop()


async def test_a_page_follows_a_worker_across_a_restart_of_the_collector(
    screen: Screen, proxy: Proxy, store: Store, clock: TestClock
) -> None:
    async with collecting(store, clock, proxy) as fleet:
        await screen.open(proxy.url)
        await screen.shows(seen("connection"), "connected")
        await screen.shows(seen("health"), "0 agents")

        await fleet.beat("w-1", host="host-1")
        await screen.shows(seen("w-1"), "reception", "host-1", "idle")
        await fleet.beat("w-1", host="host-1", status="busy", active_sessions=2)
        await screen.shows(seen("w-1"), "active", "busy, 2 sessions")
        await screen.shows(seen("health"), "1 agents, 1 active, 0 offline, 2 tasks, healthy")

    await screen.shows(seen("connection"), "degraded")
    await screen.shows(seen("w-1"), "busy, 2 sessions")

    async with collecting(store, clock, proxy) as fleet:
        await screen.shows(seen("connection"), "connected")
        await screen.shows(seen("streams"), "2")
        await screen.shows(seen("w-1"), "busy, 2 sessions")

        await fall_silent(fleet)
        await screen.shows(seen("w-1"), "offline, lost")
        await screen.shows(seen("health"), "1 agents, 0 active, 1 offline, 0 tasks, critical")
        await fleet.beat("w-1", host="host-1")
        await screen.shows(seen("w-1"), "idle active offline idle")
        await screen.shows(seen("health"), "1 agents, 0 active, 0 offline, 0 tasks, healthy")

    assert screen.failures == []


async def test_what_happened_while_a_page_was_cut_off_is_on_it_afterwards(
    screen: Screen, proxy: Proxy, store: Store, clock: TestClock
) -> None:
    async with collecting(store, clock, proxy) as fleet:
        await fleet.beat("stays")
        await fleet.beat("goes")
        await fleet.beat("falls-silent")
        await screen.open(proxy.url)
        await screen.shows(seen("health"), "3 agents, 0 active, 0 offline")

    await screen.shows(seen("connection"), "degraded")
    async with Fleet.over(store, clock) as fleet:
        await fall_silent(fleet)
        await fleet.beat("stays", status="busy")
        await fleet.beat("comes")
        await fleet.store.remove("acme", ["goes"], now=clock.now())

    async with collecting(store, clock, proxy):
        await screen.shows(seen("health"), "3 agents, 1 active, 1 offline")
        await screen.shows(seen("stays"), "active")
        await screen.shows(seen("comes"), "idle")
        await screen.shows(seen("falls-silent"), "offline, lost")
        await screen.shows_no(seen("goes"))

    assert screen.failures == []
