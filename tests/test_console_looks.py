"""How the console looks: to a phone, to a screen reader's judge, and on pictures of it."""

from __future__ import annotations

import asyncio
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from collector.values import SECOND
from tests.browser import Screen
from tests.consoles import PHONE, WIDE, Console
from tests.fleet import Fleet

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, ViewportSize

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "console"
# Each view, and what of it comes last.
VIEWS = {
    "/": ".row.group",
    "/?view=worker&id=reception-1": ".history .events",
    "/?view=events": ".events li",
    "/?view=keys": "keys-view table",
    "/?view=sessions": "sessions-view .card",
}


@pytest.fixture
def backend() -> str:
    """The page knows no store: one is enough."""
    return "selfhosted"


async def test_on_a_phone_every_filter_and_every_view_can_be_reached(
    fleet: Fleet, browser: Browser
) -> None:
    from playwright.async_api import expect

    await fleet.beat("w-1", active_sessions=1, status="busy")
    console = await Console.of(browser, fleet.url, await fleet.key(), viewport=PHONE)
    await console.worker("w-1", "1 session")

    await console.page.get_by_label("Sort").focus()
    await expect(console.page.get_by_label("Sort")).to_be_in_viewport(ratio=1)
    await console.page.get_by_role("link", name="Sign-ins").click()
    await console.shows("h1", "Your sign-ins")


# The page, a log's cells, and a table's frame: whatever is wider inside than it is. The dots at the
# end of what is cut off may hang over a little.
STICKS_OUT = """() => [...document.querySelectorAll("html, .event > *, .scroll")]
  .filter((element) => element.clientWidth > 0)
  .filter((element) => {
    const spare = element.matches("html") ? 0 : 4;
    return element.scrollWidth > element.clientWidth + spare;
  })
  .map((element) => element.outerHTML.slice(0, 200))"""
LONG = "0123456789abcdef" * 16


async def long_values(fleet: Fleet) -> str:
    """The longest of everything; a worker's id."""
    agent_id = "reception-1".ljust(256, "x")
    names = ("agent_name", "version", "project", "region", "host", "dispatch_name")
    for status in ("idle", "busy"):
        sessions = 0 if status == "idle" else 2**31
        given = dict.fromkeys(names, LONG)
        await fleet.beat(agent_id, status=status, active_sessions=sessions, **given)
    await fleet.beat("gone".ljust(256, "y"), **dict.fromkeys(names, LONG))
    headers = await fleet.headers()
    await fleet.http.delete(f"/v1/agents/{'gone'.ljust(256, 'y')}", headers=headers)
    key = {"name": LONG, "scopes": ["ingest", "read", "admin"]}
    assert (await fleet.http.post("/v1/keys", json=key, headers=headers)).status_code == 201
    return agent_id


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
async def test_nothing_sticks_out_however_long_it_is(
    fleet: Fleet, browser: Browser, viewport: ViewportSize
) -> None:
    console = await Console.of(browser, fleet.url, await fleet.key(), viewport=viewport)
    await console.shows("main", "Nobody is here yet")
    assert await console.page.evaluate(STICKS_OUT) == []

    agent_id = await long_values(fleet)
    for path, place in VIEWS.items():
        await console.open(fleet.url + path.replace("reception-1", agent_id))
        await console.page.locator(place).first.wait_for()
        assert await console.page.evaluate(STICKS_OUT) == [], path

    await console.open(f"{fleet.url}/?view=keys")
    for button in await console.page.get_by_role("button", name="Revoke…").all():
        box = await button.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= viewport["width"]


async def test_the_ring_around_what_has_the_focus_is_inside_its_row(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("w-1", version="1".ljust(100, "0"))
    console = await Console.of(browser, fleet.url, await fleet.key(), viewport=PHONE)
    button = console.page.get_by_role("button", name="reception")

    await button.press("Shift")
    await button.focus()

    assert await button.evaluate("button => getComputedStyle(button).outlineOffset") == "-2px"
    box = await button.bounding_box()
    assert box is not None
    assert box["width"] > 60


@pytest.fixture(scope="session")
def axe() -> str:
    """The checker's own program, out of the wheel that carries it."""
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text()


async def faults(page: Page, axe: str) -> list[str]:
    """In the light, and of what colours can do also in the dark."""
    # Evaluated by the browser's debugger: the page's own policy lets no such script in.
    await page.evaluate(f"{axe}; undefined")
    await page.emulate_media(color_scheme="light")
    found = await serious(page, "axe.run()")
    await page.emulate_media(color_scheme="dark")
    return found + await serious(page, "axe.run({runOnly: ['color-contrast']})")


async def serious(page: Page, run: str) -> list[str]:
    found = await page.evaluate(run)
    return [
        f"{fault['id']}: {node['html']}"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


async def test_axe_finds_no_serious_fault(fleet: Fleet, browser: Browser, axe: str) -> None:
    await populate(fleet)
    console = await Console.of(browser, fleet.url, await fleet.key())

    for path, place in VIEWS.items():
        await console.open(fleet.url + path)
        await console.page.locator(place).first.wait_for()
        assert await faults(console.page, axe) == [], path

    out = Screen(await (await browser.new_context()).new_page())
    await out.open(fleet.url)
    await out.page.locator("sign-in form").wait_for()
    assert await faults(out.page, axe) == []


async def populate(fleet: Fleet) -> None:
    """A fleet in the middle of its day: every status, two versions, a conflict, a gap behind it."""
    kinds = {
        "reception": ("2.1.0", "iad"),
        "billing": ("0.9.4", "fra"),
        "transcriber": ("5.0.0", "sfo"),
    }

    def there(kind: str, nth: int, minute: int) -> bool:
        return nth <= 2 + minute / 8 and ((kind, nth) != ("billing", 6) or minute < 50)

    async def everybody(minute: int) -> None:
        await asyncio.gather(
            *(
                fleet.beat(
                    f"{kind}-{nth}",
                    agent_name=kind,
                    version="2.2.0" if kind == "reception" and nth < 3 and minute > 40 else version,
                    region=region,
                    host=f"{region}-{nth % 3}",
                    project="contact-centre",
                    status="busy" if (nth + minute) % 3 else "idle",
                    active_sessions=(nth + minute) % 3,
                    cpu_pct=12.0 * nth + minute % 7,
                    memory_rss_bytes=(100 + 20 * nth) * 2**20,
                    memory_total_bytes=2**30,
                )
                for kind, (version, region) in kinds.items()
                for nth in range(1, 7)
                if there(kind, nth, minute)
            )
        )

    async def shared(born: float) -> None:
        fields = {"agent_name": "reception", "version": "2.1.0", "region": "iad", "host": "iad-1"}
        await fleet.beat("shared-1", started_at=born, cpu_pct=8.0, **fields)

    parts = fleet.app.state.parts
    born = fleet.clock.now() / SECOND
    for minute in range(58):
        if minute in (20, 21):
            fleet.clock.move(60)
            continue
        for _ in range(4):
            await everybody(minute)
            if minute > 25:
                await shared(born)
            fleet.clock.move(15)
            await parts.listener.listen()
        await parts.sweep.tick()
    await fleet.beat("transcriber-5", agent_name="transcriber", status="offline")
    for started in (born, born + 60, born):
        await shared(started)


async def hand_out_keys(fleet: Fleet) -> None:
    """Keys as a tenant has them: named, of some scopes each, used or not, and one that is gone."""
    made = {}
    for name, scopes in {
        "Agents in fra": ["ingest"],
        "Agents in iad": ["ingest"],
        "Grafana": ["read"],
        "On call": ["read", "admin"],
        "Old laptop": ["read"],
    }.items():
        lasts = 90 * 86400 if name == "On call" else None
        body = {"name": name, "scopes": scopes, "expires_in_seconds": lasts}
        answer = await fleet.http.post("/v1/keys", json=body, headers=await fleet.headers())
        made[name] = answer.json()
        await ten_minutes(fleet)
    gone = f"/v1/keys/{made['Old laptop']['id']}"
    await fleet.http.delete(gone, headers=await fleet.headers())
    for name, path in {"Grafana": "/v1/agents", "On call": "/v1/audit"}.items():
        headers = {"Authorization": f"Bearer {made[name]['key']}"}
        await fleet.http.get(path, headers=headers)
        await fleet.app.state.parts.keyring.note_used()
        await ten_minutes(fleet)


async def ten_minutes(fleet: Fleet) -> None:
    """They go by, the collector listening all the while."""
    for _ in range(60):
        fleet.clock.move(10)
        await fleet.app.state.parts.listener.listen()


LOOKS: dict[str, dict[str, Any]] = {
    "fleet-phone-dark": {"color_scheme": "dark", "viewport": PHONE},
    "fleet-phone": {"color_scheme": "light", "viewport": PHONE},
    "fleet-dark": {"color_scheme": "dark"},
    "fleet-light": {"color_scheme": "light"},
}
PLACES: dict[str, tuple[str, str]] = {
    "nobody-matches": ("/?q=nobody", ".none:visible"),
    "worker": ("/?view=worker&id=reception-1", ".history .events"),
    "worker-lost": ("/?view=worker&id=billing-6", ".history .events"),
    "worker-conflict": ("/?view=worker&id=shared-1", ".history .events"),
    "events": ("/?view=events", ".events li"),
    "keys": ("/?view=keys", "keys-view table"),
}


async def test_pictures_of_it_are_taken(fleet: Fleet, browser: Browser) -> None:
    PICTURES.mkdir(exist_ok=True)
    empty = await looking(browser, fleet.url, await fleet.key("empty"))
    await empty.shows("main", "Nobody is here yet")
    await picture(empty, "empty")
    await hand_out_keys(fleet)
    await populate(fleet)

    for name, looks in LOOKS.items():
        console = await looking(browser, fleet.url, await fleet.key(), **looks)
        await console.page.locator(".bars rect").last.wait_for()
        await picture(console, name)
    await fleet.app.state.parts.keyring.note_used()
    for name, (path, place) in PLACES.items():
        await console.open(fleet.url + path)
        await console.page.locator(place).first.wait_for()
        await picture(console, name)
    await console.open(fleet.url)
    await console.page.locator(".bars rect").last.wait_for()
    await console.page.context.set_offline(True)
    fleet.app.state.parts.feed.stop()
    await console.shows(".banner:visible", "Lost contact with the collector")
    await picture(console, "disconnected")

    taken = {path.stem for path in PICTURES.glob("*.png")}
    assert taken == {*LOOKS, *PLACES, "empty", "disconnected"}


async def looking(browser: Browser, url: str, key: str, **looks: Any) -> Console:
    """Somebody with a good screen."""
    return await Console.of(browser, url, key, device_scale_factor=2, **looks)


async def picture(console: Console, name: str) -> None:
    await console.page.mouse.move(0, 0)
    await console.page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


async def test_the_page_and_all_that_it_loads_carry_the_policy(fleet: Fleet) -> None:
    page = await fleet.http.get("/")
    hub = await fleet.http.get("/console/hub.js")

    for answer in (page, hub):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    again = await fleet.http.get("/console/hub.js", headers={"If-None-Match": hub.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("nothing.js", "../app.py", "..%2Fapp.py", "views"):
        assert (await fleet.http.get(f"/console/{path}")).status_code == 404
