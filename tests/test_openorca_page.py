"""The feed in a real browser, on a page that does what the OpenOrca console does."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from collector.store.protocol import Store
from tests.fleet import Fleet, TestClock
from tests.proxy import Proxy
from tests.strict import skip
from tests.test_openorca import fall_silent

if TYPE_CHECKING:
    from playwright.async_api import Page

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
DEADLINE_MS = 20_000


class Screen:
    """What somebody before the page sees."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.failures: list[str] = []
        page.on("pageerror", lambda error: self.failures.append(str(error)))

    async def open(self, url: str) -> None:
        await self._page.goto(url)

    async def shows(self, place: str, *texts: str) -> None:
        """Wait until that place of the page shows all these texts."""
        from playwright.async_api import expect

        for text in texts:
            shown = expect(self._page.get_by_test_id(place))
            await shown.to_contain_text(text, timeout=DEADLINE_MS)

    async def shows_no(self, place: str) -> None:
        from playwright.async_api import expect

        await expect(self._page.get_by_test_id(place)).to_have_count(0, timeout=DEADLINE_MS)


@pytest.fixture
async def screen() -> AsyncIterator[Screen]:
    """A page of a real chromium."""
    if find_spec("playwright") is None:
        skip("no playwright: pip install playwright")
    if (chromium := shutil.which("chromium")) is None:
        skip("no chromium: apt-get install chromium")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield Screen(await browser.new_page(viewport={"width": 1200, "height": 400}))
        await browser.close()


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
        await screen.shows("connection", "connected")
        await screen.shows("health", "0 agents")

        await fleet.beat("w-1", host="host-1")
        await screen.shows("w-1", "reception", "host-1", "idle")
        await fleet.beat("w-1", host="host-1", status="busy", active_sessions=2)
        await screen.shows("w-1", "active", "busy, 2 sessions")
        await screen.shows("health", "1 agents, 1 active, 0 offline, 2 tasks, healthy")

    await screen.shows("connection", "degraded")
    await screen.shows("w-1", "busy, 2 sessions")

    async with collecting(store, clock, proxy) as fleet:
        await screen.shows("connection", "connected")
        await screen.shows("streams", "2")
        await screen.shows("w-1", "busy, 2 sessions")

        await fall_silent(fleet)
        await screen.shows("w-1", "offline, lost")
        await screen.shows("health", "1 agents, 0 active, 1 offline, 0 tasks, critical")
        await fleet.beat("w-1", host="host-1")
        await screen.shows("w-1", "idle active offline idle")
        await screen.shows("health", "1 agents, 0 active, 0 offline, 0 tasks, healthy")

    assert screen.failures == []


async def test_what_happened_while_a_page_was_cut_off_is_on_it_afterwards(
    screen: Screen, proxy: Proxy, store: Store, clock: TestClock
) -> None:
    async with collecting(store, clock, proxy) as fleet:
        await fleet.beat("stays")
        await fleet.beat("goes")
        await fleet.beat("falls-silent")
        await screen.open(proxy.url)
        await screen.shows("health", "3 agents, 0 active, 0 offline")

    await screen.shows("connection", "degraded")
    async with Fleet.over(store, clock) as fleet:
        await fall_silent(fleet)
        await fleet.beat("stays", status="busy")
        await fleet.beat("comes")
        await fleet.store.remove("acme", ["goes"], now=clock.now())

    async with collecting(store, clock, proxy):
        await screen.shows("health", "3 agents, 1 active, 1 offline")
        await screen.shows("stays", "active")
        await screen.shows("comes", "idle")
        await screen.shows("falls-silent", "offline, lost")
        await screen.shows_no("goes")

    assert screen.failures == []
