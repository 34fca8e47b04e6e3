"""A small client of a running collector, for the commands that ask one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from collector.errors import CollectorError, InvalidField, MissingScope, Unauthenticated

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_SECONDS = 10


class CollectorUnreachable(CollectorError):
    code = "collector_unreachable"


class CollectorRefused(CollectorError):
    """The collector answered with an error that is not about the key."""

    code = "collector_refused"


def get(path: str, query: Mapping[str, str | Sequence[str]]) -> Any:
    """The JSON at a path of the collector, asked with VOICEGW_API_KEY."""
    url = os.environ.get("VOICEGW_COLLECTOR_URL") or DEFAULT_URL
    if urlsplit(url).scheme not in ("http", "https"):
        raise InvalidField.of("VOICEGW_COLLECTOR_URL", "must begin with http:// or https://")
    asked = f"{url.rstrip('/')}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
    # S310 is about file: and its like, which can't come here.
    request = Request(asked, headers={"Authorization": f"Bearer {_key()}"})  # noqa: S310
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            return json.load(answer)
    except HTTPError as error:
        raise _refusal(error) from None
    except (URLError, OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CollectorUnreachable(
            f"no collector answers at {url} ({reason}); start one with: collector serve"
        ) from None


def _key() -> str:
    key = os.environ.get("VOICEGW_API_KEY", "").strip()
    if not key:
        raise Unauthenticated(
            "set VOICEGW_API_KEY to a key with the scope read; "
            "`collector keys create --tenant default --scopes read` mints one"
        )
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
    return CollectorRefused(detail)
