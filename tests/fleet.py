"""A collector on a real port, over a given store and clock, and clients of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette

from collector import keys
from collector.app import create_app
from collector.cli.serve import config
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import SECOND
from conformance.wire import no_cookies
from contract.vocabulary import SCOPES, Scope
from tests.factories import START, body


class TestClock:
    """Stands still until it is moved."""

    __test__ = False

    def __init__(self) -> None:
        self._now = START
        self.off_by = 0

    def now(self) -> int:
        return self._now

    def skew(self) -> int:
        return self.off_by

    def anchor(self, reading: int) -> None:
        """The store's clock does not move a test's."""

    def move(self, seconds: float) -> None:
        self._now += round(seconds * SECOND)


class Fleet:
    """One collector and the keys of as many tenants as a test wants."""

    def __init__(
        self, app: Starlette, server: uvicorn.Server, clock: TestClock, http: httpx2.AsyncClient
    ) -> None:
        self.app = app
        self.url = str(http.base_url).rstrip("/")
        self.clock = clock
        self.http = http
        self._server = server
        self._keys: dict[tuple[str, tuple[Scope, ...]], str] = {}

    @classmethod
    @asynccontextmanager
    async def over(cls, store: Store, clock: TestClock, **settings: Any) -> AsyncIterator[Fleet]:
        app = create_app(Settings(**settings), store=store, clock=clock)
        async with served(app) as (server, url), client_of(url) as http:
            yield cls(app, server, clock, http)

    @property
    def store(self) -> Store:
        store: Store = self.app.state.parts.store
        return store

    @property
    def connections(self) -> set[Any]:
        """The collector's ends of those that are open."""
        return self._server.server_state.connections

    async def key(self, tenant: str = "acme", scopes: Iterable[Scope] = SCOPES) -> str:
        """A key of that tenant, minted once."""
        wanted = (tenant, tuple(scopes))
        if wanted not in self._keys:
            _, self._keys[wanted] = await keys.create(
                self.store, tenant, wanted[1], now=self.clock.now()
            )
        return self._keys[wanted]

    async def headers(self, tenant: str = "acme") -> dict[str, str]:
        return {"Authorization": f"Bearer {await self.key(tenant)}"}

    async def sign_in(self, tenant: str = "acme", *, key: str | None = None) -> dict[str, str]:
        """A browser's cookie, and the origin of its pages."""
        headers = {"Authorization": f"Bearer {key or await self.key(tenant)}"}
        answer = await self.http.post("/v1/sessions", headers=headers)
        assert answer.status_code == 201, answer.text
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return {"Cookie": cookie, "Origin": self.url}

    async def beat(
        self, agent_id: str = "worker-1", *, tenant: str = "acme", **fields: Any
    ) -> httpx2.Response:
        return await self.post(body(agent_id, **fields), tenant=tenant)

    async def post(self, content: Any, *, tenant: str = "acme") -> httpx2.Response:
        """Post a heartbeat: bytes as they are, anything else as JSON."""
        payload = {"content": content} if isinstance(content, bytes) else {"json": content}
        return await self.http.post(
            "/v1/agents/heartbeat", headers=await self.headers(tenant), **payload
        )

    async def get(self, path: str, *, tenant: str = "acme", **query: Any) -> httpx2.Response:
        return await self.http.get(path, headers=await self.headers(tenant), params=query)

    async def roster(self, *, tenant: str = "acme", **query: Any) -> list[dict[str, Any]]:
        """The tenant's workers, as the roster has them now."""
        answer = await self.get("/v1/agents", tenant=tenant, **query)
        assert answer.status_code == 200, answer.text
        workers: list[dict[str, Any]] = answer.json()["workers"]
        return workers

    async def worker(self, *, tenant: str = "acme") -> dict[str, Any]:
        """The tenant's only worker."""
        (only,) = await self.roster(tenant=tenant)
        return only


class _Server(uvicorn.Server):
    """Leaves the test process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: Starlette) -> AsyncIterator[str]:
    """The address of the app behind a real uvicorn."""
    async with served(app) as (_, url):
        yield url


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[tuple[uvicorn.Server, str]]:
    """The app behind a real uvicorn on a free port of 127.0.0.1."""
    # Named TCP, because asyncio sets TCP_NODELAY only on what says so.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = _Server(config(app))
    task = asyncio.create_task(server.serve([listener]))
    while not server.started:
        assert not task.done(), "the server did not start"
        await asyncio.sleep(0)
    try:
        yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


def client_of(url: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=64, max_keepalive_connections=64)
    return httpx2.AsyncClient(
        base_url=url, timeout=30, limits=limits, trust_env=False, cookies=no_cookies()
    )
