"""`GET /`: the console, a page of hand-written modules that come out of this package."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from collector.errors import NO_ROUTE, NotFound

DIRECTORY: Final = Path(__file__).parents[1] / "console"
MEDIA_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
KINDS: Final = tuple(MEDIA_TYPES.values())
# The worker that all tabs share obeys the policy of its own file: every answer carries it.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types hub"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Asked for each time, and sent only when it changed: an upgrade never mixes two versions.
    "Cache-Control": "no-cache",
}


class File(NamedTuple):
    content: bytes
    media_type: str
    etag: str


async def page(request: Request) -> Response:
    return _answer(request, files()["index.html"])


async def asset(request: Request) -> Response:
    """`GET /console/{path}`: what the page loads."""
    file = files().get(unquote(request.path_params["path"]))
    if file is None:
        raise NotFound(NO_ROUTE)
    return _answer(request, file)


@cache
def files() -> dict[str, File]:
    """All of them, by their path: nothing outside can be named."""
    return {
        path.relative_to(DIRECTORY).as_posix(): _read(path)
        for path in DIRECTORY.rglob("*.*")
        if path.suffix in MEDIA_TYPES
    }


def _read(path: Path) -> File:
    content = path.read_bytes()
    return File(content, MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _answer(request: Request, file: File) -> Response:
    headers = {**HEADERS, "ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
