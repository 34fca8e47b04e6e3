"""`collector serve`: run the collector until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import click
import uvicorn
import uvloop

from collector import __version__, logs
from collector import keys as key_verbs
from collector.api.connection import BoundedProtocol, FewProtocol
from collector.api.wire import Protocol
from collector.app import create_app, create_metrics_app, stop_streams
from collector.cli import opening
from collector.cli.invocation import command
from collector.cli.supervisor import Supervisor
from collector.cli.watchdog import Watchdog
from collector.clock import SystemClock
from collector.errors import CollectorError, StoreTaken
from collector.frugal import be_frugal
from collector.settings import Settings, address, variable
from collector.store.open import is_embedded, store_name
from collector.store.protocol import Store
from contract.vocabulary import DEFAULT_TENANT, SCOPES

# A beat in flight is some dozens of objects. By the interpreter's own threshold, 700, a few of
# them at once pass for long-lived, and all that is long-lived is looked through again and again.
COLLECT_AFTER = 50_000

# How long a client may leave what it was sent unread before the system ends its connection.
UNREAD_SECONDS = 30

# The system keeps this much of what is not sent yet.
UNSENT_BYTES = 128 * 1024

# Workers beat every 15 s: their connections outlive several beats.
KEEP_ALIVE_SECONDS = 75

# Requests get this share of COLLECTOR_SHUTDOWN_SECONDS to be answered.
ANSWERING_SHARE = 0.6

EXAMPLES = """
\b
Examples:
  collector serve
  collector serve --port 9000
  COLLECTOR_STORE_URL=postgresql://collector@db/presence collector serve --workers 2
  COLLECTOR_STORE_URL=postgresql://collector@db/presence collector serve --host 0.0.0.0
"""


class AddressTaken(CollectorError):
    code = "address_taken"


def _descriptors(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    """A supervisor hands on its lifeline, its listening socket and one for metrics."""
    return None if value is None else tuple(map(int, value.split(",")))


@click.command(epilog=EXAMPLES)
@click.option("--host", help="Instead of COLLECTOR_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="Instead of COLLECTOR_PORT.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes behind the one port; more than 1 needs PostgreSQL.",
)
@click.option("--inherit", callback=_descriptors, hidden=True)
def serve(
    host: str | None, port: int | None, workers: int, inherit: tuple[int, ...] | None
) -> None:
    """Serve heartbeats and the roster.

    The embedded store is brought up to date first; on PostgreSQL run `collector migrate`.
    """
    chosen = opening.settings()
    if host is not None:
        chosen = replace(chosen, host=host)
    if port is not None:
        chosen = replace(chosen, port=port)
    logs.configure(chosen.log_level, chosen.log_format)
    be_frugal()
    if inherit is not None:
        work = _serve_inherited(chosen, *inherit)
    elif workers > 1:
        work = _supervise(chosen, workers)
    else:
        work = _serve(chosen)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


async def _serve(settings: Settings) -> None:
    """One process, which greets."""
    async with opening.opened(settings, serving=True) as store:
        listeners = _listen_everywhere(settings)
        greet = partial(_welcome, settings, store, *map(url_of, listeners))
        await _run(Server(settings, store, greet, watchdog=_watchdog(settings, store)), *listeners)


async def _serve_inherited(settings: Settings, lifeline: int, *listeners: int) -> None:
    """One of several, on its supervisor's sockets, for as long as that one lives."""
    async with opening.opened(settings, serving=True) as store:
        server = Server(settings, store, watchdog=_watchdog(settings, store))
        asyncio.get_running_loop().add_reader(lifeline, _orphaned, server, lifeline)
        await _run(server, *(socket.socket(fileno=each) for each in listeners))


async def _run(
    server: Server, listener: socket.socket, for_metrics: socket.socket | None = None
) -> None:
    """Serve, the metrics at their own address if they have one."""
    if for_metrics is None:
        await server.serve([listener])
        return
    async with server.scraped_at(for_metrics):
        await server.serve([listener])


def _watchdog(settings: Settings, store: Store) -> Watchdog:
    return Watchdog(settings.shutdown_seconds, store.abandon)


def _orphaned(server: Server, lifeline: int) -> None:
    # Once: a pipe that nobody holds stays readable.
    asyncio.get_running_loop().remove_reader(lifeline)
    server.handle_exit(signal.SIGTERM, None)


async def _supervise(settings: Settings, workers: int) -> None:
    if is_embedded(settings):
        raise StoreTaken(
            "the embedded store serves one process; --workers needs PostgreSQL "
            "(COLLECTOR_STORE_URL=postgresql://…)"
        )
    async with opening.opened(settings) as store:
        listeners = _listen_everywhere(settings)
        supervisor = Supervisor(settings, listeners, workers)
        click.echo(await _welcome(settings, store, *map(url_of, listeners)))
    await supervisor.run()


class Server(uvicorn.Server):
    """uvicorn, ending by itself on a signal instead of by it, so that the store is closed."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        greet: Callable[[], Awaitable[str]] | None = None,
        *,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._app = create_app(settings, store=store)
        self._greet = greet
        self._watchdog = watchdog
        super().__init__(config(self._app, shutdown_seconds=settings.shutdown_seconds))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        if self.started and self._greet is not None:
            # Only now: a key minted for a start that then fails would be one that nobody saw.
            click.echo(await self._greet())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._watchdog is not None:
            self._watchdog.start()
        # Streams never end by themselves: uvicorn would wait for them in vain.
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(stop_streams, self._app)
        super().handle_exit(sig, frame)

    @asynccontextmanager
    async def scraped_at(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve the metrics there meanwhile, and until the collector has stopped."""
        app = create_metrics_app(self._app)
        beside = MetricsServer(config(app, shutdown_seconds=1, http=FewProtocol))
        serving = asyncio.create_task(beside.serve([listener]))
        try:
            yield
        finally:
            beside.should_exit = True
            await serving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        self._loop = asyncio.get_running_loop()
        # Not the loop's own handlers: the watchdog starts although the loop hangs.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield


class MetricsServer(uvicorn.Server):
    """uvicorn once more, which leaves the signals to the collector's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def config(
    app: Callable[..., Any],
    *,
    shutdown_seconds: int | None = None,
    http: type[BoundedProtocol] = Protocol,
) -> uvicorn.Config:
    """How uvicorn serves the app, wherever it does.

    Of the time for a stop, requests that are under way get most. The rest is for the last commit
    and for the store to be closed.
    """
    answering: Any = shutdown_seconds and shutdown_seconds * ANSWERING_SHARE
    return uvicorn.Config(
        app,
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        http=http,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=answering,
    )


def _listen_everywhere(settings: Settings) -> list[socket.socket]:
    listener = listen(settings)
    if settings.metrics_listen is None:
        return [listener]
    host, port = address(settings.metrics_listen)
    return [listener, _listen(host, port, variable("metrics_listen"), variable("metrics_listen"))]


def listen(settings: Settings) -> socket.socket:
    """The address, taken."""
    hosts, ports = "--host or COLLECTOR_HOST", "--port or COLLECTOR_PORT"
    return _listen(settings.host, settings.port, hosts, ports)


def _listen(host: str, port: int, hosts: str, ports: str) -> socket.socket:
    """Take the address; one that can't be had names the settings that choose another."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP, because an event loop sets TCP_NODELAY only on what says so.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        # The system would keep megabytes for a slow reader and ask for more only when a third of
        # them is gone, so that one who reads on would look like one who takes nothing.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Accepted sockets inherit it. A client that takes nothing holds no memory of ours for long.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        other = hosts if _is_about_host(error) else ports
        raise AddressTaken(
            f"can't listen on {host}:{port}: {error.strerror}; choose another with {other}"
        ) from None
    return listener


def _is_about_host(error: OSError) -> bool:
    return isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL


def url_of(listener: socket.socket) -> str:
    """Where a person on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


async def _welcome(
    settings: Settings, store: Store, url: str, metrics_url: str | None = None
) -> str:
    """What a person needs next: on a first embedded start, a key to go on with."""
    opening_line = f"Collector {__version__} listens on {url}, store {store_name(settings)}."
    if metrics_url is not None:
        opening_line += f"\nIts metrics are at {metrics_url}/metrics."
    mint = f"{command()} keys create --tenant {DEFAULT_TENANT} --scopes ingest,read"
    if await store.keys(None):
        return f"{opening_line}\nKeys still work. Is one lost? Mint another with: {mint}\n"
    if not is_embedded(settings):
        return f"{opening_line}\nThere is no key yet. Mint one with: {mint}\n"
    _, key = await key_verbs.create(
        store, DEFAULT_TENANT, SCOPES, now=SystemClock().now(), name="first start"
    )
    return f"""{opening_line}

First start: tenant `{DEFAULT_TENANT}` has a key for everything. It is shown only now.

  export VOICEGW_COLLECTOR_URL={url}
  export VOICEGW_API_KEY={key}

With both variables set, a first heartbeat:

  curl -sS {url}/v1/agents/heartbeat -H "Authorization: Bearer $VOICEGW_API_KEY" \
-H 'Content-Type: application/json' \
-d '{{"agent_id": "hello-1", "agent_name": "hello", "status": "idle"}}'

And who is there:

  {command()} agents list
"""
