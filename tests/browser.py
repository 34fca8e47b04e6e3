"""A real chromium, and what somebody before it sees."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tests.strict import skip

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

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


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    if find_spec("playwright") is None:
        skip("no playwright: pip install playwright")
    if (program := shutil.which("chromium")) is None:
        skip("no chromium: apt-get install chromium")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        await browser.close()


class Screen:
    """A page, and whatever went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.failures: list[str] = []
        page.on("pageerror", lambda error: self.failures.append(str(error)))
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.set_default_timeout(DEADLINE_MS)

    def _hear(self, kind: str, text: str) -> None:
        # A refused or broken request is the browser's line, not the page's fault.
        if kind == "error" and "Failed to load resource" not in text:
            self.failures.append(text)

    async def open(self, url: str) -> None:
        await self.page.goto(url)

    async def shows(self, place: str, *texts: str) -> None:
        """Wait until that place of the page shows all these texts."""
        from playwright.async_api import expect

        for text in texts:
            shown = expect(self.page.locator(place).first)
            await shown.to_contain_text(text, timeout=DEADLINE_MS)

    async def shows_no(self, place: str, **having: Any) -> None:
        from playwright.async_api import expect

        await expect(self.page.locator(place, **having)).to_have_count(0, timeout=DEADLINE_MS)
