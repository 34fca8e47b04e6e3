"""How the console feels with a large fleet: the page beside the same page with a small one.

A real chromium scrolls, searches and watches while a real collector tells of changes. Everything
runs on one machine, so the figures are of the large page as a share of the small one.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collector.cli.tables import table

if TYPE_CHECKING:
    from playwright.async_api import Page

SMALL, LARGE = 50, 5_000
CHANGES_PER_SECOND = 100.0
SECONDS = 120
START_SECONDS = 120
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--enable-precise-memory-info",
]

# Counts what a person would feel: tasks that hold the page up, and frames that came late.
WATCH = """
window.felt = { tasks: [], frames: [] };
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.felt.tasks.push(entry.duration);
}).observe({ type: "longtask" });
let last = performance.now();
const frame = (now) => {
  window.felt.frames.push(now - last);
  last = now;
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""

EXAMPLES = """
\b
Examples:
  python -m benchmarks.console
  python -m benchmarks.console --seconds 30 --json console.json

\b
Exit codes:
  0 done, 2 wrong usage, 3 chromium is missing
"""


@dataclass(frozen=True, slots=True)
class Felt:
    """What somebody before one page felt."""

    workers: int
    longest_task_ms: float
    tasks_over_50_ms: int
    frames: int
    late_frames: int
    slowest_percent_frame_ms: float
    heap_begin_mb: float
    heap_end_mb: float

    @property
    def late_share(self) -> float:
        return self.late_frames / max(1, self.frames)


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=SECONDS, show_default=True, help="How long each page is used.")
@click.option("--changes", default=CHANGES_PER_SECOND, show_default=True, help="Told a second.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="All figures into this file.")
def console(seconds: int, changes: float, file: Path | None) -> None:
    """Use the console with 50 and with 5,000 workers, and say what it feels like."""
    if shutil.which("chromium") is None:
        click.echo("chromium is missing: apt-get install chromium", err=True)
        sys.exit(3)
    felt = asyncio.run(_both(seconds, changes))
    _show(felt)
    if file is not None:
        file.write_text(json.dumps([asdict(each) for each in felt], indent=2) + "\n")


async def _both(seconds: int, changes: float) -> list[Felt]:
    felt = []
    for workers in (SMALL, LARGE):
        click.echo(f"{workers} workers, {changes:g} changes a second, {seconds} s …", err=True)
        async with _demo(workers, changes) as (url, key), _page() as page:
            felt.append(await _use(page, url, key, workers, seconds))
    return felt


@asynccontextmanager
async def _demo(workers: int, changes: float) -> AsyncIterator[tuple[str, str]]:
    """A collector with a simulated fleet, by its own command."""
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("collector")), "demo"),
        *("--workers", str(workers), "--changes-per-second", str(changes)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(START_SECONDS):
            while not (found := _address_and_key(said)):
                line = await process.stdout.readline()
                assert line, f"the demo ended: {said}"
                said += line.decode()
        yield found
    finally:
        process.terminate()
        await process.communicate()


def _address_and_key(said: str) -> tuple[str, str] | None:
    url, key = re.search(r"http://127\.0\.0\.1:\d+", said), re.search(r"vk_[A-Z2-7]{32}", said)
    return (url[0], key[0]) if url and key else None


@asynccontextmanager
async def _page() -> AsyncIterator[Page]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        program = shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield await browser.new_page(viewport={"width": 1280, "height": 800})
        await browser.close()


async def _use(page: Page, url: str, key: str, workers: int, seconds: int) -> Felt:
    await page.goto(url)
    await page.get_by_label("Key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await page.locator(".row.group").first.wait_for()
    await page.goto(f"{url}/?open=*")
    await page.locator(".row.worker").first.wait_for()
    # The first paint is over: from here on somebody looks at it.
    await page.evaluate(WATCH)
    heap_begin = await _heap(page)
    await _browse(page, seconds)
    found = await page.evaluate("window.felt")
    return _felt(workers, found, heap_begin, await _heap(page))


async def _browse(page: Page, seconds: int) -> None:
    """Scroll down and up again, and search now and then, as a person does."""
    loop = asyncio.get_running_loop()
    ends, turn = loop.time() + seconds, 0
    search = page.get_by_label("Search workers")
    while loop.time() < ends:
        turn += 1
        down = 1 if turn % 8 < 4 else -1
        for _ in range(20):
            await page.mouse.wheel(0, 240 * down)
            await asyncio.sleep(0.05)
        if turn % 8 == 0:
            await search.fill("reception")
            await asyncio.sleep(1)
            await search.fill("")
        await asyncio.sleep(0.5)


async def _heap(page: Page) -> float:
    """In MB, after a collection of garbage."""
    client = await page.context.new_cdp_session(page)
    await client.send("HeapProfiler.collectGarbage")
    used = await client.send("Runtime.getHeapUsage")
    await client.detach()
    return float(used["usedSize"]) / 1e6


def _felt(workers: int, found: dict[str, Any], heap_begin: float, heap_end: float) -> Felt:
    frames = sorted(found["frames"][1:])
    usual = frames[len(frames) // 2]
    return Felt(
        workers=workers,
        longest_task_ms=round(max(found["tasks"], default=0.0), 1),
        tasks_over_50_ms=len(found["tasks"]),
        frames=len(frames),
        # Two frames' time and more: at least one was dropped.
        late_frames=sum(frame > 1.9 * usual for frame in frames),
        slowest_percent_frame_ms=round(frames[int(len(frames) * 0.99)], 1),
        heap_begin_mb=round(heap_begin, 1),
        heap_end_mb=round(heap_end, 1),
    )


def _show(felt: list[Felt]) -> None:
    small, large = felt
    rows = [
        ("longest task, ms", small.longest_task_ms, large.longest_task_ms),
        ("tasks over 50 ms", small.tasks_over_50_ms, large.tasks_over_50_ms),
        ("frames", small.frames, large.frames),
        ("late frames", f"{small.late_share:.2%}", f"{large.late_share:.2%}"),
        ("frame, p99, ms", small.slowest_percent_frame_ms, large.slowest_percent_frame_ms),
        ("heap at the beginning, MB", small.heap_begin_mb, large.heap_begin_mb),
        ("heap at the end, MB", small.heap_end_mb, large.heap_end_mb),
    ]
    titles = ("FIGURE", f"{small.workers} WORKERS", f"{large.workers} WORKERS")
    table(titles, [tuple(map(str, row)) for row in rows], empty="")


if __name__ == "__main__":
    console(prog_name="python -m benchmarks.console")
