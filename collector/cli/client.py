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

import click

from collector.cli.invocation import command
from collector.errors import (
    CollectorError,
    InvalidField,
    MissingScope,
    NotFound,
    Unauthenticated,
)

DEFAULT_URL = "http://127.0.0.1:8080"
# Above the longest wait of a long poll.
TIMEOUT_SECONDS = 40
RETRY_SECONDS = 1.0


class CollectorUnreachable(CollectorError):
    code = "collector_unreachable"


class CollectorRefused(CollectorError):
    """The collector answered with an error that is not about the key."""

    code = "collector_refused"


def get(path: str, query: Mapping[str, str | Sequence[str]] | None = None) -> Any:
    """The JSON at a path of the collector, asked with VOICEGW_API_KEY."""
    return _ask("GET", path + (f"?{urlencode(query, doseq=True)}" if query else ""))


def insist(path: str, query: Mapping[str, str | Sequence[str]]) -> Any:
    """As `get`, but a collector that is away is waited for; that is said once."""
    told = False
    while True:
        try:
            return get(path, query)
        except CollectorUnreachable as error:
            if not told:
                click.secho(f"collector: {error.detail}; trying again", fg="yellow", err=True)
            told = True
            time.sleep(RETRY_SECONDS)


def delete(path: str) -> None:
    _ask("DELETE", path)


def worker_path(agent_id: str) -> str:
    return f"/v1/agents/{quote(agent_id, safe='')}"


def _ask(method: str, path: str) -> Any:
    url = os.environ.get("VOICEGW_COLLECTOR_URL") or DEFAULT_URL
    if not _is_http(url):
        raise InvalidField.of("VOICEGW_COLLECTOR_URL", "must be like http://127.0.0.1:8080")
    # S310 is about file: and its like, which can't come here.
    request = Request(url.rstrip("/") + path, method=method)  # noqa: S310
    # Not to where a redirect leads.
    request.add_unredirected_header("Authorization", f"Bearer {_key()}")
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            body = answer.read()
            return json.loads(body) if body else None
    except HTTPError as error:
        raise _refusal(error) from None
    except (URLError, OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CollectorUnreachable(
            f"no collector answers at {url} ({reason}); start one with: {command()} serve"
        ) from None


def _is_http(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https") and urlsplit(url).port != 0
    except ValueError:
        return False


def _key() -> str:
    key = os.environ.get("VOICEGW_API_KEY", "").strip()
    if not key:
        raise Unauthenticated(
            "set VOICEGW_API_KEY to a key with the scope read; "
            f"`{command()} keys create --tenant default --scopes read` mints one"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        # Said here, and not by the HTTP client, which would quote it.
        raise Unauthenticated("VOICEGW_API_KEY has characters in it that no key has")
    return key


def _refusal(error: HTTPError) -> CollectorError:
    try:
        detail = json.load(error)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"the collector answered {error.code} {error.reason}"
    match error.code:
        case 401:
            return Unauthenticated(f"VOICEGW_API_KEY: {detail}")
        case 403:
            return MissingScope(f"VOICEGW_API_KEY: {detail}")
        case 404:
            return NotFound(detail)
        case 502 | 503 | 504:
            return CollectorUnreachable(detail)
    return CollectorRefused(detail)
