"""The collector as the launcher runs it: over a real store, with its time in the launcher's hands.

Orders come as JSON, a line each, on standard input; each is answered by a line. It ends with its
input. The one part of the suite that imports the collector.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import uvicorn
import uvloop

from collector import keys
from collector.api.parts import Parts
from collector.app import create_app, stop_streams
from collector.cli.serve import config
from collector.errors import StoreUnavailable
from collector.settings import Settings
from collector.store.open import store_for
from collector.store.protocol import Store
from collector.values import Beat

# The longest step that a listening collector takes: it says every 5 s that it listens.
STEP = 5_000_000


class StillClock:
    """Stands still until it is moved."""

    def __init__(self, now: int) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def skew(self) -> int:
        return 0

    def anchor(self, reading: int) -> None:
        """The store's clock does not move it."""

    def move(self, micros: int) -> None:
        self._now += micros


class Gate:
    """A store whose commits can be held up, or refused."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open = asyncio.Event()
        self._open.set()
        self._fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, beats: Sequence[Beat], **moments: int) -> frozenset[str]:
        await self._open.wait()
        if self._fails:
            raise StoreUnavailable("the store is out of reach")
        return await self._store.commit(beats, **moments)

    def behave(self, how: str) -> None:
        self._fails = how == "fail"
        if how == "stall":
            self._open.clear()
        else:
            self._open.set()


class Orders:
    """What the launcher may ask for."""

    def __init__(self, parts: Parts, clock: StillClock, gate: Gate) -> None:
        self._parts = parts
        self._clock = clock
        self._gate = gate

    async def obey(self, order: str, *given: Any) -> Any:
        return await getattr(self, f"_{order}")(*given)

    async def _move(self, micros: int) -> None:
        while micros > 0:
            step = min(micros, STEP)
            self._clock.move(step)
            micros -= step
            await self._listen()

    async def _jump(self, micros: int) -> None:
        self._clock.move(micros)

    async def _listen(self) -> None:
        await self._parts.listener.listen()
        # Twice: a row that a writer held is passed over the first time.
        await self._parts.sweep.tick()
        await self._parts.sweep.tick()

    async def _mint(self, tenant: str, scopes: list[Any]) -> str:
        _, plaintext = await keys.create(self._parts.store, tenant, scopes, now=self._clock.now())
        return plaintext

    async def _revoke(self, key_id: str) -> None:
        await keys.revoke(self._parts.store, key_id, now=self._clock.now())

    async def _prune(self, keep: int) -> None:
        await self._parts.store.prune_events(before=0, keep=keep, limit=1_000_000)

    async def _retire(self) -> None:
        while await self._parts.retention.tick():
            pass

    async def _store(self, how: str) -> None:
        self._gate.behave(how)

    async def _now(self) -> int:
        return self._clock.now()


async def main(now: int, port: int) -> None:
    settings = Settings.from_environment(os.environ)
    clock, gate = StillClock(now), Gate(store_for(settings))
    store: Any = gate
    await store.open(serving=True)
    await store.migrate()
    app = create_app(settings, store=store, clock=clock)
    server = uvicorn.Server(config(app))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        if serving.done():
            await serving
        await asyncio.sleep(0.01)
    _say({"port": listener.getsockname()[1]})
    await _take_orders(Orders(app.state.parts, clock, gate))
    gate.behave("work")
    stop_streams(app)
    server.should_exit = True
    await serving
    await store.close()


async def _take_orders(orders: Orders) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        number, *order = json.loads(line)
        try:
            _say({"number": number, "done": await orders.obey(*order)})
        except Exception as error:  # the launcher tells it to whoever gave the order
            _say({"number": number, "failed": f"{type(error).__name__}: {error}"})


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    # Threads that stand back behind every other program of a busy machine verify no key in time.
    keys.VERIFIERS_NICE = 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher ends it, by closing its input
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(*map(int, sys.argv[1:])))
