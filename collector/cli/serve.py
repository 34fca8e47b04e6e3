"""`collector serve`: run the collector until it is told to stop."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import uvicorn
import uvloop

from collector import __version__, logs
from collector import keys as key_verbs
from collector.app import create_app
from collector.cli import opening
from collector.clock import SystemClock
from collector.errors import CollectorError
from collector.settings import Settings
from collector.store.open import is_embedded
from collector.store.protocol import Store
from contract.vocabulary import DEFAULT_TENANT, SCOPES

# Workers beat every 15 s: their connections outlive several beats.
KEEP_ALIVE_SECONDS = 75

EXAMPLES = """
\b
Examples:
  collector serve
  collector serve --port 9000
  COLLECTOR_STORE_URL=postgresql://collector@db/presence collector serve --host 0.0.0.0
"""


class AddressTaken(CollectorError):
    code = "address_taken"


@click.command(epilog=EXAMPLES)
@click.option("--host", help="Instead of COLLECTOR_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="Instead of COLLECTOR_PORT.")
def serve(host: str | None, port: int | None) -> None:
    """Serve heartbeats and the roster.

    The embedded store is brought up to date first; on PostgreSQL run `collector migrate`.
    """
    chosen = opening.settings()
    if host is not None:
        chosen = replace(chosen, host=host)
    if port is not None:
        chosen = replace(chosen, port=port)
    logs.configure(chosen.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(chosen))


async def _serve(settings: Settings) -> None:
    async with opening.opened(settings, serving=True) as store:
        listener = _listen(settings)
        server = Server(
            uvicorn.Config(
                create_app(settings, store=store),
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=settings.shutdown_seconds,
            ),
            partial(_welcome, settings, store, _url(listener)),
        )
        await server.serve([listener])


class Server(uvicorn.Server):
    """uvicorn, ending by itself on a signal instead of by it, so that the store is closed."""

    def __init__(self, config: uvicorn.Config, welcome: Callable[[], Awaitable[str]]) -> None:
        super().__init__(config)
        self._welcome = welcome

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            # Only now: a key minted for a start that then fails would be one that nobody saw.
            click.echo(await self._welcome())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Named TCP, because an event loop sets TCP_NODELAY only on what says so.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise AddressTaken(
            f"can't listen on {settings.host}:{settings.port}: {error.strerror}; "
            "choose another with --port or COLLECTOR_PORT"
        ) from None
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


async def _welcome(settings: Settings, store: Store, url: str) -> str:
    """What a person needs next: on a first embedded start, a key to go on with."""
    opening_line = f"Collector {__version__} listens on {url}, store {_store_name(settings)}."
    command = _command()
    if not is_embedded(settings) or await store.keys(None):
        mint = f"{command} keys create --tenant {DEFAULT_TENANT} --scopes ingest,read"
        return f"{opening_line}\nMint a key with: {mint}\n"
    _, key = await key_verbs.create(
        store, DEFAULT_TENANT, SCOPES, now=SystemClock().now(), name="first start"
    )
    return f"""{opening_line}

First start: tenant `{DEFAULT_TENANT}` has a key for everything. It is shown only now.

  export VOICEGW_COLLECTOR_URL={url}
  export VOICEGW_API_KEY={key}

A first heartbeat:

  curl -sS {url}/v1/agents/heartbeat -H 'Authorization: Bearer {key}' \
-H 'Content-Type: application/json' \
-d '{{"agent_id": "hello-1", "agent_name": "hello", "status": "idle"}}'

And who is there, with both variables set:

  {command} agents list
"""


def _store_name(settings: Settings) -> str:
    """The store without what may be a password."""
    return settings.store_url.split("@")[-1].removeprefix("sqlite:///")


def _command() -> str:
    """How to call this command again from where it was called."""
    here = Path(sys.argv[0])
    if shutil.which("collector") == str(here):
        return "collector"
    with suppress(ValueError):
        return str(here.absolute().relative_to(Path.cwd()))
    return str(here)
