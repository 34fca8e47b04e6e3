"""The ways in: `Authorization: Bearer vk_…` or a browser's cookie, and the scope of a door."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.requests import Request

from collector.api.parts import Parts
from collector.errors import ForeignOrigin, MissingScope, Unauthenticated
from collector.logs import caller
from collector.values import Principal
from contract.vocabulary import SESSION_COOKIE, Scope

Headers = Iterable[tuple[bytes, bytes]]
_PORT = re.compile(r":([0-9]{1,5})$")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


async def require(
    parts: Parts, headers: Headers, scope: Scope, *, at: int | None = None
) -> Principal:
    """The caller, who holds `scope`, by a key alone: no cookie is looked at."""
    return _holding(scope, _known(await parts.keyring.identify(bearer(headers), at=at)))


async def admit(parts: Parts, request: Request, scope: Scope) -> Principal:
    """The caller, who holds `scope`, by a key or, where none is sent, by a session's cookie."""
    token = request.cookies.get(cookie_name(request))
    if not token or "authorization" in request.headers:
        return await require(parts, request.headers.raw, scope)
    principal = _known(await parts.sessions.identify(token))
    _check_origin(request)
    return _holding(scope, principal)


def cookie_name(request: Request) -> str:
    """With the port that the browser sees: it sends a host's cookies to all of its ports."""
    port = _PORT.search(request.headers.get("host", ""))
    return f"{SESSION_COOKIE}_{port[1]}" if port else SESSION_COOKIE


def _known(principal: Principal) -> Principal:
    """From here on the log tells who asks."""
    caller.set(principal.owner)
    return principal


def _holding(scope: Scope, principal: Principal) -> Principal:
    if scope not in principal.scopes:
        raise MissingScope(f"This key lacks the scope: {scope}")
    return principal


def bearer(headers: Headers) -> str:
    """The key that is presented."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and key.strip():
                return key.strip()
            break
    raise Unauthenticated("Send a key: `Authorization: Bearer vk_…`.")


def _check_origin(request: Request) -> None:
    """A browser sends a cookie for whatever page asks: what changes something must be our own's."""
    if request.method not in ("GET", "HEAD") and not _is_same_origin(request):
        raise ForeignOrigin("A session changes something only for pages of this very origin.")


def _is_same_origin(request: Request) -> bool:
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site") == "same-origin"
    scheme: str = request.scope["scheme"]
    own = f"{scheme}://{request.headers.get('host', '')}".lower()
    # Browsers leave a scheme's own port away; a proxy may add it.
    return origin.lower() == own.removesuffix(_DEFAULT_PORTS.get(scheme, ""))
