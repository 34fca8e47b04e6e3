"""A small client of a running collector, for the commands that ask one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from collector.cli.addresses import without_secrets
from collector.cli.invocation import command
from collector.cli.spinner import waiting
from collector.cli.tables import complain
from collector.errors import (
    NO_ROUTE,
    CollectorError,
    InvalidField,
    MissingScope,
    NotFound,
    QuotaExceeded,
    Unauthenticated,
)
from contract.vocabulary import Scope

DEFAULT_URL = "http://127.0.0.1:8080"
# Above the longest wait of a long poll.
TIMEOUT_SECONDS = 40
PROBE_SECONDS = 5
RETRY_SECONDS = 1.0


class CollectorUnreachable(CollectorError):
    code = "collector_unreachable"


class CollectorRefused(CollectorError):
    """The collector answered with an error that is not about the key."""

    code = "collector_refused"


def get(path: str, query: Mapping[str, str | Sequence[str]] | None = None) -> Any:
    """The JSON at a path of the collector, asked with VOICEGW_API_KEY."""
    with waiting("asking the collector"):
        return _ask("GET", _with(path, query))


def look(path: str, query: Mapping[str, str | Sequence[str]]) -> Any:
    """As `get`, for who draws the terminal itself, and soon tells that nobody answers."""
    return _ask("GET", _with(path, query), timeout_seconds=PROBE_SECONDS)


def insist(path: str, query: Mapping[str, str | Sequence[str]]) -> Any:
    """As `get`, but a collector that is away is waited for; that is said once."""
    told = False
    while True:
        try:
            return _ask("GET", _with(path, query))
        except CollectorUnreachable as error:
            if not told:
                complain(f"{error.detail}; trying again", fg="yellow")
            told = True
            time.sleep(RETRY_SECONDS)


def post(path: str, body: Mapping[str, Any]) -> Any:
    """Send JSON with VOICEGW_API_KEY; the JSON that comes back."""
    with waiting("sending to the collector"):
        return _ask("POST", path, body=body, scope="ingest")


def delete(path: str, query: Mapping[str, str | Sequence[str]] | None = None) -> Any:
    with waiting("asking the collector"):
        return _ask("DELETE", _with(path, query), scope="admin")


def probe(path: str) -> Any:
    """The JSON at a path that needs no key."""
    with waiting("asking the collector"):
        return _ask("GET", path, scope=None, timeout_seconds=PROBE_SECONDS)


def url() -> str:
    """Where the collector is."""
    given = os.environ.get("VOICEGW_COLLECTOR_URL") or DEFAULT_URL
    if not _is_http(given):
        raise InvalidField.of("VOICEGW_COLLECTOR_URL", "must be like http://127.0.0.1:8080")
    return given.rstrip("/")


def worker_path(agent_id: str) -> str:
    return f"/v1/agents/{quote(agent_id, safe='')}"


def _ask(
    method: str,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    scope: Scope | None = "read",
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Any:
    sent = None if body is None else json.dumps(body).encode()
    # S310 is about file: and its like, which can't come here.
    request = Request(url() + path, sent, method=method)  # noqa: S310
    if body is not None:
        request.add_header("Content-Type", "application/json")
    if scope is not None:
        # Not to where a redirect leads.
        request.add_unredirected_header("Authorization", f"Bearer {_key(scope)}")
    return _answer(request, timeout_seconds)


def _answer(request: Request, timeout_seconds: float) -> Any:
    try:
        with urlopen(request, timeout=timeout_seconds) as answer:  # noqa: S310
            body = answer.read()
            return json.loads(body) if body else None
    except HTTPError as error:
        raise _refusal(error) from None
    except (URLError, OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CollectorUnreachable(
            f"no collector answers at {without_secrets(url())} ({reason}); "
            f"start one with: {command()} serve"
        ) from None


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Nobody is asked with a password in the URL: the HTTP client would take it for a port.
        return parts.scheme in ("http", "https") and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        return False


def _with(path: str, query: Mapping[str, str | Sequence[str]] | None) -> str:
    return path + (f"?{urlencode(query, doseq=True)}" if query else "")


def _key(scope: Scope) -> str:
    key = os.environ.get("VOICEGW_API_KEY", "").strip()
    if not key:
        raise Unauthenticated(
            f"set VOICEGW_API_KEY to a key with the scope {scope}; "
            f"`{command()} keys create --tenant default --scopes {scope}` mints one"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        # Said here, and not by the HTTP client, which would quote it.
        raise Unauthenticated("VOICEGW_API_KEY has characters in it that no key has")
    return key


def _refusal(error: HTTPError) -> CollectorError:
    try:
        told = json.load(error)
        detail = str(told["detail"])
        named = [(each["field"], each["message"]) for each in told.get("errors", ())]
    except (ValueError, KeyError, TypeError):
        told, named = None, []
        detail = f"what answers at {url()} said {error.code} {error.reason}"
    match error.code:
        case 401:
            return Unauthenticated(f"VOICEGW_API_KEY: {detail}")
        case 403:
            return MissingScope(f"VOICEGW_API_KEY: {detail}")
        case 404 if told is None or detail == NO_ROUTE:
            where = f"{error.url} is no route of a collector"
            return NotFound(f"{where}; set VOICEGW_COLLECTOR_URL to its address, without a path")
        case 404:
            return NotFound(detail)
        case 422:
            return InvalidField(detail, errors=named)
        case 429:
            return QuotaExceeded(detail)
        case 502 | 503 | 504:
            return CollectorUnreachable(detail, errors=named)
    return CollectorRefused(detail)
