"""The console in a real browser, over a real collector whose clock the test moves."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import Screen
from tests.consoles import Console
from tests.fleet import Fleet, client_of
from tests.processes import Serving, create_key
from tests.test_openorca import fall_silent

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend() -> str:
    """The page knows no store: one is enough."""
    return "selfhosted"


async def test_a_beat_appears_goes_busy_is_lost_by_the_ttl_and_comes_back(
    fleet: Fleet, browser: Browser
) -> None:
    console = await Console.of(browser, fleet.url, await fleet.key())
    await console.shows("main", "Nobody is here yet", fleet.url, "register_worker", "agent_id=")
    await console.shows("first-minute", 'input("Idle')

    await fleet.beat("w-1", version="1.0", host="host-1", region="iad")
    await console.worker("w-1", "idle", "1.0", "host-1", "iad")
    await fleet.beat("w-1", status="busy", active_sessions=3)
    await console.worker("w-1", "busy", "3")

    await fall_silent(fleet)
    await console.worker("w-1", "lost")
    await fleet.beat("w-1")
    await console.worker("w-1", "idle")

    assert console.failures == []


# Each view that asks for more than the stream tells, and what it shows then.
READ_BESIDE_THE_STREAM = {
    "/?view=keys": "keys-view .event",
    "/?view=worker&id=before": ".history .events",
    "/?view=events": ".events li",
    "/?view=sessions": "sessions-view .card",
}


async def test_the_page_recovers_by_itself_when_the_collector_is_killed_and_comes_back(
    store_url: str, tmp_path: Path, browser: Browser
) -> None:
    key, port = create_key(store_url, scopes="ingest,read,admin")["key"], _free_port()

    async def beat(url: str, agent_id: str) -> None:
        body = {"agent_id": agent_id, "agent_name": "reception", "status": "idle"}
        async with client_of(url) as http:
            headers = {"Authorization": f"Bearer {key}"}
            answer = await http.post("/v1/agents/heartbeat", json=body, headers=headers)
            assert answer.status_code == 202

    with Serving(store_url, tmp_path, port=port) as first:
        console = await Console.of(browser, first.url, key)
        tabs = [await console.tab() for _ in READ_BESIDE_THE_STREAM]
        await beat(first.url, "before")
        await console.worker("before", "idle")
        first.kill()
        await console.shows(".live", "Reconnecting…")
        await console.shows_no(".banner:visible")
        await console.shows(".banner:visible", "Lost contact with the collector", "as of")
        await console.shows(".live", "Disconnected")
        for tab, path in zip(tabs, READ_BESIDE_THE_STREAM, strict=True):
            await tab.go(path)
            await tab.shows("[role=alert]", "can't be reached")
        await tabs[0].shows("button:disabled", "New key…")

    with Serving(store_url, tmp_path, port=port) as second:
        await beat(second.url, "after")
        await console.shows(".live", "Live")
        await console.worker("after", "idle")
        await console.worker("before", "idle")
        await console.shows_no(".banner:visible")
        for tab, place in zip(tabs, READ_BESIDE_THE_STREAM.values(), strict=True):
            await tab.page.locator(place).first.wait_for()
            await tab.shows_no("[role=alert]")
        await tabs[0].shows_no("button:disabled")

    assert [tab.failures for tab in (console, *tabs)] == [[]] * 5


async def test_eight_tabs_share_one_stream(fleet: Fleet, browser: Browser) -> None:
    await fleet.beat("w-1")
    console = await Console.of(browser, fleet.url, await fleet.key())
    tabs = [console, *[await console.tab() for _ in range(7)]]

    await fleet.beat("w-1", status="busy", active_sessions=1)
    for tab in tabs:
        await tab.worker("w-1", "busy")

    assert fleet.app.state.parts.feed.followers == 1
    for tab in tabs:
        assert tab.failures == []


async def test_two_tenants_in_two_browsers_never_see_each_others_workers(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("green-1", tenant="green")
    await fleet.beat("blue-1", tenant="blue")
    green = await Console.of(browser, fleet.url, await fleet.key("green"))
    blue = await Console.of(browser, fleet.url, await fleet.key("blue"))
    await fleet.beat("green-2", tenant="green")
    await fleet.beat("blue-2", tenant="blue")

    await green.worker("green-2", "idle")
    await blue.worker("blue-2", "idle")
    for path in ("/", "/?view=events", "/?view=worker&id=blue-1", "/?view=keys"):
        await green.open(fleet.url + path)
        await green.shows(".live", "Live")
        await green.shows_no("main", has_text="blue-2")
    await blue.shows_no("main", has_text="green-")


MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'`{{7*7}}"


async def test_whatever_a_worker_sends_is_shown_as_text(fleet: Fleet, browser: Browser) -> None:
    names = ("agent_id", "agent_name", "version", "project", "region", "host", "dispatch_name")
    sent = {name: f"{name}{MARKUP}" for name in names}
    await fleet.post({**sent, "status": "busy", "active_sessions": 1})
    console = await Console.of(browser, fleet.url, await fleet.key())
    dialogs: list[str] = []
    console.page.on("dialog", lambda dialog: dialogs.append(dialog.message))

    await console.worker(sent["agent_id"], *(sent[name] for name in ("version", "region", "host")))
    await console.shows(".row.group", sent["agent_name"])
    await console.page.get_by_role("link", name=sent["agent_id"]).click()
    await console.shows(".facts", *(sent[name] for name in names[1:]))
    await console.shows("h1", sent["agent_id"])
    await console.open(f"{fleet.url}/?view=events")
    await console.shows(".events", sent["agent_id"], sent["agent_name"])
    await fleet.beat("1-\u202edael", agent_name="\u2066over\u200b")
    await console.shows(".events li", "1-\ufffddael", "\ufffdover\ufffd")

    assert await console.page.locator("main img, main script").count() == 0
    assert (dialogs, console.failures) == ([], [])


async def test_choices_stand_in_the_url(fleet: Fleet, browser: Browser) -> None:
    for nth in range(3):
        await fleet.beat(f"a-{nth}", agent_name="reception", version="1.0")
    await fleet.beat("b-1", agent_name="billing", version="2.0", status="busy", active_sessions=2)
    console = await Console.of(browser, fleet.url, await fleet.key())

    await console.page.get_by_label("Search workers").fill("b-")
    await console.page.get_by_label("Status").select_option("busy")
    await console.page.get_by_label("Group").select_option("version")
    await console.shows(".found", "1 of 4 workers in 1 group")
    link = console.page.url
    assert "q=b-" in link
    assert "status=busy" in link

    another = await console.tab()
    await another.shows(".found", "1 of 4 workers in 1 group")
    await another.worker("b-1", "busy")
    await another.shows_no(".row.worker >> visible=true", has_text="a-0")

    await console.page.go_back()
    assert console.page.url == link.replace("&group=version", "")
    await console.page.go_back()
    await console.shows(".found", "1 of 4 workers in 1 group")
    assert "status" not in console.page.url
    assert "q=b-" in console.page.url


async def test_a_column_sorts_and_a_figure_filters(fleet: Fleet, browser: Browser) -> None:
    for nth, cpu in enumerate((5.0, 90.0, 40.0)):
        await fleet.beat(f"w-{nth}", cpu_pct=cpu)
    await fleet.beat("w-3")
    await fleet.beat("w-4", cpu_pct=99.0)
    await fleet.beat("w-4", status="offline", cpu_pct=99.0)
    console = await Console.of(browser, f"{fleet.url}/?group=none", await fleet.key())
    shown = console.page.locator("fleet-row:visible .id")
    head = console.page.get_by_role("columnheader", name="CPU")

    await head.get_by_role("button").click()
    assert await shown.all_text_contents() == ["w-1", "w-2", "w-0", "w-3", "w-4"]
    assert await head.get_attribute("aria-sort") == "descending"
    await console.shows(".joined button", "↓")
    await head.get_by_role("button").click()
    assert await shown.all_text_contents() == ["w-0", "w-2", "w-1", "w-3", "w-4"]
    assert await head.get_attribute("aria-sort") == "ascending"
    await console.page.get_by_label("Sort").select_option("Sort: Name")
    await console.page.get_by_role("button", name="Left").click()
    assert await shown.all_text_contents() == ["w-4"]
    await console.page.get_by_role("button", name="Left").click()
    assert len(await shown.all_text_contents()) == 5


# The ids of all rows whose elements or texts were touched; ages, which tick by themselves, aside.
TOUCHED = """() => {
  window.touched = new Set();
  new MutationObserver((records) => {
    for (const { target } of records) {
      const element = target.nodeType === Node.TEXT_NODE ? target.parentElement : target;
      const row = element?.closest("fleet-row");
      if (!row || element.closest(".age")) continue;
      window.touched.add(row.querySelector(".id")?.textContent);
    }
  }).observe(document.querySelector("virtual-list"), {
    subtree: true, childList: true, attributes: true,
  });
}"""


async def test_a_change_touches_the_row_of_its_worker_alone(fleet: Fleet, browser: Browser) -> None:
    for nth in range(5):
        await fleet.beat(f"w-{nth}")
    console = await Console.of(browser, f"{fleet.url}/?group=none", await fleet.key())
    await console.worker("w-4", "idle")
    await console.page.evaluate(TOUCHED)
    await fleet.beat("w-3", status="busy", active_sessions=2)
    await console.worker("w-3", "busy")
    assert await console.page.evaluate("[...window.touched]") == ["w-3"]


async def test_a_long_list_is_in_order_wherever_one_scrolls(fleet: Fleet, browser: Browser) -> None:
    from playwright.async_api import expect

    await asyncio.gather(*(fleet.beat(f"w-{nth:03}") for nth in range(200)))
    console = await Console.of(browser, f"{fleet.url}/?group=none", await fleet.key())
    await console.worker("w-000", "idle")
    for top, seen in ((3000, "w-070"), (9000, "w-199"), (4000, "w-100"), (0, "w-000")):
        await console.page.evaluate(f"scrollTo(0, {top})")
        await expect(console.page.locator(".id", has_text=seen)).to_be_in_viewport()
        ids = await console.page.locator("fleet-row:visible .id").all_text_contents()
        assert ids == sorted(ids), ids
        assert len(ids) < 60, "only those in sight exist"


async def test_two_versions_of_one_agent_are_easy_to_see(fleet: Fleet, browser: Browser) -> None:
    for nth in range(4):
        await fleet.beat(f"r-{nth}", agent_name="reception", version=f"1.{nth % 2}")
    console = await Console.of(browser, fleet.url, await fleet.key())

    await console.shows(".versions.several", "1.1 ×2", "1.0 ×2")

    for nth in range(5):
        await fleet.beat(f"r-{nth}", agent_name="reception", version=f"2.{nth}", region="iad")
    await console.shows(".versions.several", "2.4 ×1  2.3 ×1  2.2 ×1  2.1 ×1  +1")
    await console.page.get_by_label("Group").select_option("region")
    await console.shows(".versions:not(.several)", "2.4 ×1  2.3 ×1  2.2 ×1  2.1 ×1  +1")


async def test_a_conflict_and_who_is_lost_stand_out_only_while_there_are_any(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("w-1")
    console = await Console.of(browser, fleet.url, await fleet.key())
    await console.worker("w-1", "idle")
    await console.shows_no(".tile:visible", has_text="Conflict")
    await console.shows_no(".tile.alarm, .row.group .state:visible")

    for started in (10, 20, 10):
        await fleet.beat("shared-1", started_at=started)
    await console.shows(".tile.conflict.alarm:visible", "1")
    await console.shows(".row.group .state.conflict:visible", "1 conflict")

    await fall_silent(fleet)
    await console.shows(".tile.lost.alarm", "2")
    await console.shows(".row.group .state.lost:visible", "2 lost")
    await console.shows_no(".row.gone")


async def test_the_last_bar_is_how_many_are_online_now(fleet: Fleet, browser: Browser) -> None:
    for nth in range(3):
        await fleet.beat(f"w-{nth}")
    console = await Console.of(browser, fleet.url, await fleet.key())
    last = ".hits rect:last-child title"
    await console.shows(last, "now: 3 workers online")

    await fleet.beat("w-0", status="offline")
    await console.shows(last, "now: 2 workers online")
    await console.shows(".tile .number", "2")


async def test_an_age_grows_although_what_tells_the_time_comes_late(
    fleet: Fleet, browser: Browser
) -> None:
    console = Screen(await browser.new_page())
    await console.open(fleet.url)

    told = await console.page.evaluate(
        """async () => {
          const { collectorTime, heardTime } = await import("/console/time.js");
          const at = (seconds) => Math.round(collectorTime(seconds * 1000));
          const told = [];
          for (const [server, local] of [[1000, 0], [1001, 3], [1010, 4], [1012, 8], [500, 9]]) {
            heardTime(server, local * 1000);
            told.push(at(local));
          }
          return told;
        }"""
    )

    # Two seconds late; ahead; late again; and set back.
    assert told == [1000, 1003, 1010, 1014, 500]


async def test_a_worker_has_a_page_with_its_history_and_an_admin_removes_it(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("w-1", version="1.0", memory_rss_bytes=2**28, memory_total_bytes=2**30)
    await fleet.beat("w-1", status="busy", active_sessions=2)
    console = await Console.of(browser, fleet.url, await fleet.key())

    focused = "document.activeElement.id"
    assert await console.page.evaluate(focused) == "main"
    await console.page.get_by_role("link", name="w-1").click()
    await console.shows(".now", "busy", "2 sessions · last beat")
    assert await console.page.evaluate(focused) == "main"
    await console.shows(".history", "Uptime 24h", "came online", "2 sessions", "first seen")
    await console.page.get_by_role("button", name="Remove…").click()
    await console.page.get_by_role("button", name="Remove", exact=True).click()
    await console.shows("main", "Nobody is here yet")
    await console.shows(".said", "w-1 was removed.")

    assert await fleet.roster() == []
    assert console.failures == []


async def test_the_uptime_of_a_week_is_told_after_the_first_day(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("w-1")
    console = await Console.of(browser, f"{fleet.url}/?view=worker&id=w-1", await fleet.key())
    await console.shows(".history", "Uptime 24h", "not known yet")
    await console.shows_no(".tile", has_text="Uptime 7d")

    fleet.clock.move(2 * 86400)
    await fleet.beat("w-1")
    await console.shows(".history", "Uptime 24h", "Uptime 7d")
    await console.shows_no(".strip", has_text="first seen")


async def test_a_page_says_why_its_worker_is_not_there(fleet: Fleet, browser: Browser) -> None:
    await fleet.beat("w-1", status="busy", active_sessions=3, cpu_pct=12.0)
    await fleet.beat("w-2", status="offline")
    await fall_silent(fleet)
    console = await Console.of(browser, f"{fleet.url}/?view=worker&id=w-1", await fleet.key())
    await console.shows(".now", "lost", "Silent for more than 45 s")
    await console.shows(".facts", "0, had 3 when last heard", "12% when last heard")
    await console.shows("main button:visible", "Remove…")
    await console.shows("nav a[aria-current]", "Fleet")

    await console.open(f"{fleet.url}/?view=worker&id=w-2")
    await console.shows(".now", "left", "Said goodbye")

    await console.open(f"{fleet.url}/?view=worker&id=nobody")
    await console.shows(".now", "It is not on the roster")
    await console.shows_no("button:visible", has_text="Remove…")


async def test_an_admin_gets_a_key_for_the_first_agents_where_none_is_yet(
    fleet: Fleet, browser: Browser
) -> None:
    console = await Console.of(browser, fleet.url, await fleet.key())
    await console.page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    await console.page.get_by_role("button", name="Create an ingest key").click()
    await console.shows(".made", "It is shown only now")
    await console.page.get_by_role("button", name="Copy").first.click()
    copied = await console.page.evaluate("navigator.clipboard.readText()")
    key = copied.partition("VOICEGW_API_KEY=")[2]
    await console.shows("li:last-child code", f"Bearer {key}")
    headers = {"Authorization": f"Bearer {key}"}
    body = {"agent_id": "hello-1", "agent_name": "hello", "status": "idle"}
    await fleet.http.post("/v1/agents/heartbeat", json=body, headers=headers)

    await console.worker("hello-1", "idle")
    assert (await fleet.http.get("/v1/agents", headers=headers)).status_code == 403
    assert console.failures == []


async def test_who_is_no_admin_is_offered_nothing_of_an_admins(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("w-1")
    console = await Console.of(browser, fleet.url, await fleet.key(scopes=["read"]))
    await console.worker("w-1", "idle")

    await console.shows_no("nav a", has_text="Keys")
    await console.shows_no("button", has_text="Create")
    await console.page.get_by_role("link", name="w-1").click()
    await console.shows(".now", "idle")
    await console.shows_no("button", has_text="Remove")
    await console.open(f"{fleet.url}/?view=keys")
    await console.shows("keys-view", "yours lacks it")
    await console.shows_no("button", has_text="New key")


async def test_events_come_live_and_can_be_held_and_filtered(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("w-1")
    console = await Console.of(browser, fleet.url, await fleet.key())
    await console.page.get_by_role("link", name="Events").click()
    await console.shows(".events", "came online", "w-1")

    await fleet.beat("w-2", status="offline")
    await console.shows(".events li", "w-2", "left")
    await console.page.get_by_role("button", name="Pause").click()
    await fleet.beat("w-3")
    await console.shows(".found", "1 waiting")
    await console.shows_no(".events li", has_text="w-3")
    await console.page.get_by_role("button", name="Go on").click()
    await console.shows(".events li", "w-3")
    await console.page.get_by_label("Filter events").fill("w-2")
    await console.shows(".found", "1 event")

    assert console.failures == []


async def test_events_can_be_narrowed_to_problems_and_repeat_neither_time_nor_day(
    fleet: Fleet, browser: Browser
) -> None:
    for agent_id in ("w-1", "w-2"):
        await fleet.beat(agent_id)
    fleet.clock.move(86400)
    for started in (10, 20, 10):
        await fleet.beat("shared-1", started_at=started)
    console = await Console.of(browser, f"{fleet.url}/?view=events", await fleet.key())

    await console.shows(".events .day", "November")
    assert await console.page.locator(".events .day").count() == 1
    assert await console.page.locator("time:not(.same)").count() == 2
    await console.page.get_by_label("Kind").select_option("Problems only")
    await console.shows(".found", "1 event")
    await console.shows(".events li", "conflict", "shared-1")
    assert "kind=problems" in console.page.url


async def test_the_end_of_the_events_says_that_there_are_older_ones(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("w")
    console = await Console.of(browser, f"{fleet.url}/?view=events", await fleet.key())
    await console.shows(".events", "w")
    await console.shows_no(".end:visible")

    await asyncio.gather(*(fleet.beat(f"w-{nth}") for nth in range(500)))
    await console.open(f"{fleet.url}/?view=events&kind=problems")
    await console.shows(".end:visible", "the latest 500 events", "collector events --last 1000")


async def test_an_admin_makes_rotates_and_revokes_keys_and_sees_it_in_the_audit(
    fleet: Fleet, browser: Browser
) -> None:
    console = await Console.of(browser, fleet.url, await fleet.key())
    await console.page.get_by_role("link", name="Keys").click()

    await console.page.get_by_role("button", name="New key…").click()
    await console.page.get_by_label("Name").fill("for the lobby")
    for scope in ("ingest", "read"):
        await console.page.get_by_label(scope).uncheck()
    await console.page.get_by_role("button", name="Create").click()
    await console.shows("dialog [role=alert]", "Choose at least one scope")
    await console.page.get_by_label("read").check()
    await console.page.get_by_role("button", name="Create").click()
    await console.shows("dialog .copyable", "vk_")
    for _ in range(3):
        await console.page.keyboard.press("Escape")
    await console.shows("dialog .copyable", "vk_")
    await console.shows("keys-view tr:has(.own)", "yours")
    made = await console.page.locator("dialog code").inner_text()
    await console.page.get_by_role("button", name="I have copied it").click()
    row = console.page.get_by_role("row").filter(has_text="for the lobby")
    await row.get_by_role("button", name="Rotate…").click()
    await console.page.get_by_role("button", name="Rotate", exact=True).click()
    await console.page.get_by_role("button", name="I have copied it").click()
    await row.first.get_by_role("button", name="Revoke…").click()
    await console.page.get_by_role("button", name="Revoke", exact=True).click()
    await console.shows("keys-view", "Revoked key", "Rotated key", "Created key")

    headers = {"Authorization": f"Bearer {made}"}
    assert (await fleet.http.get("/v1/agents", headers=headers)).status_code in (200, 401)
    assert console.failures == []


async def test_a_session_ends_with_its_key(fleet: Fleet, browser: Browser) -> None:
    key = await fleet.key("acme", ["read"])
    console = await Console.of(browser, fleet.url, key)

    await fleet.store.revoke_key("acme", key.removeprefix("vk_")[:8], now=fleet.clock.now())
    await fleet.app.state.parts.keyring.refresh()

    await console.shows("sign-in", "Your sign-in has ended")

    another = Screen(await console.page.context.new_page())
    await another.open(fleet.url)
    await another.page.get_by_label("Key").fill(await fleet.key())
    await another.page.get_by_role("button", name="Sign in").click()
    await console.shows(".live", "Live")


async def test_one_signs_out_and_sees_where_one_is_signed_in(
    fleet: Fleet, browser: Browser
) -> None:
    first = await Console.of(browser, fleet.url, await fleet.key())
    second = await Console.of(browser, fleet.url, await fleet.key())

    await first.page.get_by_role("link", name="Sign-ins").click()
    await first.shows("sessions-view", "this one")
    await first.page.get_by_role("button", name="End").click()
    await second.shows("sign-in", "Your sign-in has ended")
    await first.page.get_by_role("button", name="Sign out").first.click()
    await first.shows("sign-in", "Sign in")


async def test_a_wrong_key_is_told_so(fleet: Fleet, browser: Browser) -> None:
    screen = Screen(await browser.new_page())
    await screen.open(fleet.url)

    for mistyped in ("vk_…", "🔑", "vk_abc"):
        await screen.page.get_by_label("Key").fill(mistyped)
        await screen.page.get_by_role("button", name="Sign in").click()
        await screen.shows("[role=alert]", "This is no key, or it is mistyped")

    await screen.page.get_by_label("Key").fill("vk_" + "A" * 32)
    await screen.page.get_by_role("button", name="Sign in").click()

    await screen.shows("[role=alert]", "unknown, revoked, expired or mistyped")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_tab_never_shows_another_tenants_fleet_after_a_sign_in_beside_it(
    fleet: Fleet, browser: Browser
) -> None:
    await fleet.beat("green-1", tenant="green")
    await fleet.beat("blue-1", tenant="blue")
    first = await Console.of(browser, fleet.url, await fleet.key("green"))
    await first.worker("green-1", "idle")
    second = await first.tab()

    await second.page.get_by_role("button", name="Sign out").click()
    await second.page.get_by_label("Key").fill(await fleet.key("blue"))
    await second.page.get_by_role("button", name="Sign in").click()
    await second.worker("blue-1", "idle")

    await first.shows_no("main", has_text="green-1")
    for tab in (first, second):
        assert tab.failures == []
