"""Somebody before the console, in a real chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.browser import Screen

if TYPE_CHECKING:
    from playwright.async_api import Browser, ViewportSize

WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}


class Console(Screen):
    """Somebody who has signed in."""

    @classmethod
    async def of(cls, browser: Browser, url: str, key: str, **looks: Any) -> Console:
        context = await browser.new_context(viewport=looks.pop("viewport", WIDE), **looks)
        console = cls(await context.new_page())
        await console.open(url)
        await console.page.get_by_label("Key").fill(key)
        await console.page.get_by_role("button", name="Sign in").click()
        await console.shows(".live", "Live")
        return console

    async def worker(self, agent_id: str, *texts: str) -> None:
        from playwright.async_api import expect

        row = self.page.get_by_role("row").filter(has_text=agent_id).filter(visible=True)
        for text in texts:
            await expect(row.first).to_contain_text(text)

    async def go(self, path: str) -> None:
        """As a link of the page does, without loading it anew."""
        await self.page.evaluate(
            "path => { history.pushState(null, '', path); dispatchEvent(new Event('navigate')); }",
            path,
        )

    async def tab(self) -> Console:
        another = Console(await self.page.context.new_page())
        await another.open(self.page.url)
        await another.shows(".live", "Live")
        return another
