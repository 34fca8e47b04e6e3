"""Around every request: its id, its path as it was sent, its log line, and an end for surprises."""

from __future__ import annotations

import itertools
import logging
import re
import secrets
from collections.abc import Awaitable, Iterable
from typing import Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from collector.api.auth import Headers
from collector.api.problems import refused
from collector.errors import CollectorError, Internal
from collector.logs import REQUESTS, agent, caller, refusal, request_id
from collector.redaction import holds_key

# On every answer. The console's files say themselves how long they are kept.
DEFAULT_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_log = logging.getLogger(REQUESTS)
_PROCESS: Final = secrets.token_hex(4).encode()
_count = itertools.count(1)
_ACCEPTABLE: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_FIELD: Final = re.compile(r"[a-z][a-z0-9_.]{0,63}")
# The log shows this much of a path.
_MAX_PATH: Final = 512
# Longer than any address; a trusted proxy may pass on something else.
_MAX_PEER: Final = 64

# The address and the port that a request came from, if it has them.
Client = tuple[str, int] | None


class Envelope:
    """The outermost layer of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        identity = own_identity(scope["headers"]) or fresh_identity()
        request_id.set(identity.decode("ascii"))
        for told in (caller, refusal, agent):
            told.set(None)
        # Routes match the path as it was sent: in the decoded one, a worker's "/" is no longer
        # told apart from the route's own.
        scope["path"] = _path_as_sent(scope)
        status = 0

        def send_with_id(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    *missing_headers(message["headers"]),
                    (b"x-request-id", identity),
                ]
            return send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            _log.debug("%s %s was given up", scope["method"], _loggable(scope["path"]))
            return
        except Exception:
            _log.exception("%s %s failed", scope["method"], _loggable(scope["path"]))
            if status:
                raise
            await refused(Internal("The collector failed; the request id finds the reason."))(
                scope, receive, send_with_id
            )
        log_request(scope["method"], scope["path"], status, scope.get("client"))


def own_identity(headers: Headers) -> bytes | None:
    """The caller's own X-Request-ID, if it is one."""
    for name, value in headers:
        if name == b"x-request-id" and _is_an_id(value):
            return value
    return None


def fresh_identity() -> bytes:
    """For a request that came without one."""
    return b"%s-%x" % (_PROCESS, next(_count))


def missing_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the default headers that the answer lacks."""
    there = {name.lower() for name, _ in headers}
    return [header for header in DEFAULT_HEADERS if header[0] not in there]


def log_request(method: str, path: str, status: int, client: Client) -> None:
    """The line of a request that was answered; of one that was refused, also why and whose."""
    if is_logged(status):
        line = "%s %s %d"
        extra = {"status": status, **refusal_facts(refusal.get(), client)}
        _log.log(_level(status), line, method, _loggable(path), status, extra=extra)


def refusal_facts(error: CollectorError | None, client: Client) -> dict[str, object]:
    """Return the fields of a refusal's log line; an answer that is no refusal has none."""
    if error is None:
        return {}
    return {
        "code": error.code,
        "fields": [_name(field) for field, _ in error.errors],
        "peer": client[0][:_MAX_PEER] if client else None,
        "agent_id": agent.get(),
    }


def _name(field: str) -> str:
    """The name of a field; one that is unlike any of ours is the sender's, and not repeated."""
    return field if _FIELD.fullmatch(field) else "(another)"


def is_logged(status: int) -> bool:
    """Whether somebody wants to read of such answers."""
    return _log.isEnabledFor(_level(status))


def _is_an_id(value: bytes) -> bool:
    """Visible and short; never a key, sent here by mistake, that answers would then carry."""
    return _ACCEPTABLE.fullmatch(value) is not None and not holds_key(value.decode("ascii"))


def _path_as_sent(scope: Scope) -> str:
    raw = scope.get("raw_path")
    return raw.decode("ascii", "replace") if raw else quote(scope["path"])


def _loggable(path: str) -> str:
    """The path's beginning, unless a key stands in it, plain or percent-encoded."""
    # Twice as much is looked at as is told: no key that begins before the cut is missed.
    if holds_key(path[: 2 * _MAX_PATH]):
        return "(a path with a key in it)"
    return path if len(path) <= _MAX_PATH else f"{path[:_MAX_PATH]}…"


def _level(status: int) -> int:
    if status >= 500:
        return logging.WARNING
    return logging.INFO if status >= 400 else logging.DEBUG
