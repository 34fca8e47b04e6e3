"""`collector demo`: a collector with a simulated fleet, of which nothing is left in the end."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import uvloop

from collector import __version__, keys, logs
from collector.cli import opening
from collector.cli.invocation import command
from collector.cli.serve import Server, listen, url_of
from collector.cli.spinner import waiting
from collector.clock import SystemClock
from collector.demo.past import live_through
from collector.demo.present import keep_beating
from collector.demo.scenario import Scenario
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import SECOND
from contract.vocabulary import DEFAULT_TENANT, SCOPES

MOST_WORKERS = 5000
SHUTDOWN_SECONDS = 2

EXAMPLES = """
\b
Examples:
  collector demo
  collector demo --port 9000 --workers 60 --seed 7
  collector demo --workers 500 --changes-per-second 50
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    default=24,
    show_default=True,
    help="How large the fleet is.",
)
@click.option(
    "--changes-per-second",
    "changes",
    type=click.FloatRange(0.01, 2000),
    help="Calls taken and ended; by default as many as are likely.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The same one, the same story."
)
def demo(workers: int, changes: float | None, port: int, seed: int) -> None:
    """Show a collector at work: a simulated fleet, its last hour, and a key to look at it.

    Workers come, take calls, are deployed, leave, crash and come back. Everything is in a temporary
    store; Ctrl-C ends it and removes everything. It listens on 127.0.0.1 alone, and reads no
    COLLECTOR_… variable.
    """
    # That the past has a gap is part of the story, and no news.
    logs.configure("error")
    # Each of these ends it as Ctrl-C does, whatever it is at: else its directory would stay.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), TemporaryDirectory(prefix="collector-demo-") as place:
        store_url = f"sqlite:///{Path(place) / 'collector.db'}"
        settings = Settings(port=port, store_url=store_url, shutdown_seconds=SHUTDOWN_SECONDS)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_told(Demo(settings, workers=workers, changes=changes, seed=seed)))
    click.echo("The demo is over; nothing of it is left.")


async def _until_told(playing: Demo) -> None:
    task = asyncio.ensure_future(playing.play())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, playing.end, task)
    with suppress(asyncio.CancelledError):
        await task


class Demo:
    """The collector and its fleet, in one process: whatever ends the one ends the other."""

    def __init__(
        self, settings: Settings, *, workers: int, changes: float | None, seed: int
    ) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._opened_at = self._clock.now()
        self._scenario = Scenario(
            workers=workers,
            seed=seed,
            opened_at=self._opened_at / SECOND,
            changes_per_second=changes,
        )
        self._server: Server | None = None
        self._fleet: asyncio.Task[None] | None = None

    async def play(self) -> None:
        # First of all: that the port is taken is said at once.
        with listen(self._settings) as listener:
            async with opening.opened(self._settings, serving=True) as store:
                with waiting("living through the last hour"):
                    await live_through(
                        self._scenario,
                        store,
                        tenant_id=DEFAULT_TENANT,
                        opened_at=self._opened_at,
                        clock=self._clock,
                    )

                async def greet() -> str:
                    return await self._open(store, url_of(listener), listener.getsockname()[1])

                self._server = Server(self._settings, store, greet)
                try:
                    await self._server.serve([listener])
                finally:
                    await self._dismiss()

    def end(self, task: asyncio.Task[None]) -> None:
        """Stop serving, or getting ready to."""
        if self._server is not None and self._server.started:
            self._stop_serving()
        else:
            task.cancel()

    def _stop_serving(self) -> None:
        assert self._server is not None, "the fleet beats while it is served"
        if not self._server.should_exit:
            self._server.handle_exit(signal.SIGTERM, None)

    async def _open(self, store: Store, url: str, port: int) -> str:
        now = self._clock.now()
        # A key of its own: who revokes the one that is shown does not silence the fleet.
        _, theirs = await keys.create(store, DEFAULT_TENANT, ["ingest"], now=now, name="fleet")
        _, shown = await keys.create(store, DEFAULT_TENANT, SCOPES, now=now, name="visitor")
        self._fleet = asyncio.create_task(
            keep_beating(self._scenario, port=port, key=theirs, seconds=self._seconds)
        )
        self._fleet.add_done_callback(lambda _: self._stop_serving())
        return _welcome(url, shown, len(self._scenario.members))

    async def _dismiss(self) -> None:
        if self._fleet is not None:
            self._fleet.cancel()
            # A fleet that ended by itself did so by a defect, which is raised here.
            with suppress(asyncio.CancelledError):
                await self._fleet

    def _seconds(self) -> float:
        return (self._clock.now() - self._opened_at) / SECOND


def _welcome(url: str, key: str, workers: int) -> str:
    return f"""Collector {__version__} listens on {url}, with {workers} simulated workers.

Open {url} in a browser, and sign in with this key, which ends with the demo:

  {key}

Or in another terminal:

  export VOICEGW_COLLECTOR_URL={url}
  export VOICEGW_API_KEY={key}
  {command()} agents top
  {command()} events --follow

Ctrl-C ends it and removes everything.
"""
