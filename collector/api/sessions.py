"""Browsers: sign in with a key, see where that key is signed in, and sign out."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import to_json
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from collector import sessions as verbs
from collector.api import auth, queries
from collector.api.parts import Parts
from collector.errors import NotFound, Unauthenticated
from collector.sessions import NO_SESSION, ends_at
from collector.values import SECOND, Key, Principal, Session
from collector.workers import seconds
from contract.vocabulary import SESSION_ID_PATTERN

_ID = re.compile(SESSION_ID_PATTERN)


class SessionsEndpoint(HTTPEndpoint):
    """`/v1/sessions`."""

    async def get(self, request: Request) -> Response:
        """The key's own, newest first."""
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "read")
        queries.single(request, ())
        now = parts.clock.now()
        key = await _key(parts, principal)
        found = await parts.store.sessions_of(principal.key_id, now=now)
        listed = [project(each, key, is_current=each.id == principal.session_id) for each in found]
        body = {"sessions": listed, "server_time": now / SECOND}
        return Response(to_json(body), media_type="application/json")

    async def post(self, request: Request) -> Response:
        """Sign in. By a key alone: no session begets another, which would then have no end."""
        parts = Parts.of(request)
        principal = await auth.require(parts, request.headers.raw, "read")
        now = parts.clock.now()
        key = await _key(parts, principal)
        session, token = await verbs.sign_in(
            parts.store,
            key,
            browser=verbs.browser_of(request.headers.get("user-agent", "")),
            now=now,
            lasting=parts.session_lasts,
        )
        response = _told(session, key, now, status=201)
        _set_cookie(response, request, token, (session.expires_at - now) // SECOND)
        return response


class CurrentEndpoint(HTTPEndpoint):
    """`/v1/sessions/current`: the cookie's own."""

    async def get(self, request: Request) -> Response:
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "read")
        _own(principal)
        queries.single(request, ())
        now = parts.clock.now()
        digest = verbs.digest_of(request.cookies[auth.cookie_name(request)])
        found = await parts.store.find_session(digest, now=now)
        if found is None:
            raise Unauthenticated(NO_SESSION)
        return _told(*found, now)

    async def delete(self, request: Request) -> Response:
        """Sign out; of all who do so at once, one did, and the others find no session."""
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "read")
        if not await _end(parts, principal, _own(principal)):
            raise Unauthenticated(NO_SESSION)
        return _signed_out(request)


class SessionEndpoint(HTTPEndpoint):
    """`/v1/sessions/{session_id}`."""

    async def delete(self, request: Request) -> Response:
        """Sign out elsewhere, or here; another key's session is as unknown as none."""
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "read")
        session_id = request.path_params["session_id"]
        # What no session is called may be what no store can be asked for.
        if not _ID.fullmatch(session_id) or not await _end(parts, principal, session_id):
            raise NotFound("This key has no session with this id.")
        is_own = session_id == principal.session_id
        return _signed_out(request) if is_own else Response(status_code=204)


async def _end(parts: Parts, principal: Principal, session_id: str) -> bool:
    """Here at once; elsewhere it is noticed within two seconds."""
    ended = await parts.store.end_session(principal.key_id, session_id)
    if ended:
        parts.sessions.forget(session_id)
        parts.feed.end_sessions({session_id})
    return ended


def _own(principal: Principal) -> str:
    """The session that the caller has, and who comes with a key has none."""
    if principal.session_id is None:
        raise Unauthenticated("This is of the session of a cookie; there is none.")
    return principal.session_id


async def _key(parts: Parts, principal: Principal) -> Key:
    key = await parts.store.find_key(principal.key_id)
    if key is None:
        raise Unauthenticated("The key is revoked or expired.")
    return key


def _set_cookie(response: Response, request: Request, token: str, max_age: int) -> None:
    """For this origin alone, and out of reach of the page's own programs."""
    response.set_cookie(
        auth.cookie_name(request),
        token,
        max_age=max_age,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def _signed_out(request: Request) -> Response:
    response = Response(status_code=204)
    _set_cookie(response, request, "", 0)
    return response


def _told(session: Session, key: Key, now: int, *, status: int = 200) -> Response:
    body = {**project(session, key, is_current=True), "server_time": now / SECOND}
    return Response(to_json(body), status, media_type="application/json")


def project(session: Session, key: Key, *, is_current: bool) -> dict[str, Any]:
    return {
        "id": session.id,
        "tenant": session.tenant_id,
        "key_id": key.id,
        "key_name": key.name,
        "scopes": list(key.scopes),
        "browser": session.browser,
        "created_at": seconds(session.created_at),
        "expires_at": seconds(ends_at(session, key)),
        "current": is_current,
    }
