"""A proxy as an operator puts before a console: it serves the page and adds the key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.fleet import client_of, serving

PAGES = Path(__file__).parent / "pages"


class Proxy:
    """One origin for the page and the collector behind it, which may be another one later."""

    def __init__(self, page: str) -> None:
        self.url = ""
        self._page = PAGES / page
        self._collector: httpx2.AsyncClient | None = None
        self._headers: dict[str, str] = {}

    @classmethod
    @asynccontextmanager
    async def before(cls, page: str) -> AsyncIterator[Proxy]:
        proxy = cls(page)
        routes = [Route("/", proxy._show), Route("/{path:path}", proxy._forward)]
        async with serving(Starlette(routes=routes)) as proxy.url:
            yield proxy

    @asynccontextmanager
    async def leading_to(self, url: str, key: str) -> AsyncIterator[None]:
        """Forward to that collector with that key; to nobody before and after."""
        self._headers = {"Authorization": f"Bearer {key}"}
        async with client_of(url) as self._collector:
            try:
                yield
            finally:
                self._collector = None

    async def _show(self, _request: Request) -> Response:
        return FileResponse(self._page)

    async def _forward(self, request: Request) -> Response:
        if self._collector is None:
            return Response("no collector", 502)
        asked = self._collector.build_request("GET", request.url.path, headers=self._headers)
        answer = await self._collector.send(asked, stream=True)
        kind = answer.headers["content-type"]
        return StreamingResponse(_passed_on(answer), answer.status_code, media_type=kind)


async def _passed_on(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        with suppress(httpx2.TransportError):
            async for chunk in answer.aiter_raw():
                yield chunk
    finally:
        await answer.aclose()
