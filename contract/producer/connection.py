"""The one kept-alive connection from a worker to its collector."""

from __future__ import annotations

import base64
import encodings.idna
import http.client
import json
import os
import ssl
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

from contract.producer.wire import Patience, Wire

PATH = "/v1/agents/heartbeat"
# A collector answers with less; what follows is not waited for.
MAX_ANSWER_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said; `body` is empty unless it was a JSON object."""

    status: int
    body: dict[str, Any]
    retry_after: float | None
    location: str | None

    @property
    def is_accepted(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Address:
    """Where a collector is: the parts of its URL."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """ValueError says what is wrong with it."""
        if not url.strip():
            raise ValueError("no collector is given: set VOICEGW_COLLECTOR_URL or collector_url")
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the collector's URL must begin with http:// or https:// and a host")
        _refuse_what_is_no_host(parts.hostname)
        return cls(parts.scheme, parts.hostname, _port(parts), parts.path.rstrip("/") + PATH)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


class Connection:
    """Posts to one address, over one connection for as long as that lasts."""

    def __init__(self, address: Address, key: str, patience: Patience) -> None:
        self._address = address
        self._headers = {
            "Host": address.authority,
            "Content-Type": "application/json",
            "User-Agent": "worker-presence",
            "Authorization": f"Bearer {key}",
        }
        self._patience = patience
        self._http: http.client.HTTPConnection | None = None
        # Known from the first moment on: a fork may come while it connects.
        self._wire: Wire | None = None
        # How the request is made on this connection: a proxy wants the whole URL, and its own key.
        self._target = address.path
        self._proxy_headers: dict[str, str] = {}
        self._context: ssl.SSLContext | None = None

    def post(self, beat: dict[str, Any]) -> Answer:
        """The answer, within the patience that was begun; OSError or HTTPException without one."""
        body = json.dumps(beat, allow_nan=False).encode()
        is_kept = self._http is not None
        try:
            return self._exchange(body)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            # The other side may close a kept connection at any moment; a beat can be sent twice.
            if not is_kept:
                raise
        return self._exchange(body)

    def close(self) -> None:
        """For good: what it trusts is megabytes, and a worker that left may be kept."""
        self._hang_up()
        self._context = None

    def let_go(self) -> None:
        """In a fork's child: no reader is touched, for a thread that is not here may hold it."""
        if self._wire is not None:
            self._wire.let_go()

    def _exchange(self, body: bytes) -> Answer:
        try:
            if self._http is None:
                self._http = self._connect()
            self._http.request("POST", self._target, body, self._headers | self._proxy_headers)
            with self._http.getresponse() as response:
                return self._read(response)
        except BaseException:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _read(self, response: http.client.HTTPResponse) -> Answer:
        text = response.read(MAX_ANSWER_BYTES)
        if not response.isclosed() or response.will_close:
            self._hang_up()
        return Answer(
            response.status,
            _object(text),
            _seconds(response.headers.get("Retry-After"), response.headers.get("Date")),
            response.headers.get("Location"),
        )

    def _connect(self) -> http.client.HTTPConnection:
        address, proxy = self._address, _proxy_for(self._address)
        is_relayed = proxy is not None and address.scheme == "http"
        self._target = str(address) if is_relayed else address.path
        self._proxy_headers = proxy.headers if proxy and is_relayed else {}
        first = proxy or address
        self._wire = wire = Wire(self._patience)
        try:
            wire.connect(first.host, first.port)
            if address.scheme == "https":
                if proxy:
                    proxy.tunnel(wire, address)
                wire.secure(self._trust(), address.host)
        except BaseException:
            wire.close()
            raise
        return _over(wire, address.host, address.port)

    def _trust(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
        return self._context


@dataclass(frozen=True, slots=True)
class Proxy:
    """One that the environment names."""

    host: str
    port: int
    headers: dict[str, str]

    def tunnel(self, wire: Wire, address: Address) -> None:
        """Through it to `address`; OSError if it does not lead there."""
        headers = {"Host": address.authority} | self.headers
        _over(wire, self.host, self.port).request("CONNECT", address.authority, headers=headers)
        with http.client.HTTPResponse(cast(Any, wire), method="CONNECT") as response:
            response.begin()
        if response.status != 200:
            raise OSError(f"the proxy {self.host}:{self.port} answered {response.status}")


def _proxy_for(address: Address) -> Proxy | None:
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    # Loaded only where it is needed: it costs as much as all the rest of this package.
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    url = proxies.get(address.scheme) or proxies.get("all")
    if not url or proxy_bypass(address.authority):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise OSError(f"the proxy for {address.scheme} must be an http:// URL")
    headers = {}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, _port(parts), headers)


def _refuse_what_is_no_host(name: str) -> None:
    """As the system would, which asks the same codec; it may have no descriptor to find it by."""
    try:
        encodings.idna.Codec().encode(name)
    except UnicodeError:
        raise ValueError(f"the collector's URL names no host: {name!r}") from None


def _port(parts: SplitResult) -> int:
    if parts.port == 0:
        raise ValueError("the port in a URL can't be 0")
    return parts.port or {"http": 80, "https": 443}[parts.scheme]


def _over(wire: Wire, host: str, port: int) -> http.client.HTTPConnection:
    """An HTTP connection over a wire that is there already."""
    connection = http.client.HTTPConnection(host, port)
    connection.auto_open = 0
    connection.sock = cast(Any, wire)
    return connection


def _object(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _seconds(retry_after: str | None, date: str | None) -> float | None:
    """What Retry-After asks for: seconds, or a date, which is taken by the server's own clock."""
    if retry_after is None:
        return None
    try:
        if retry_after.strip().isdigit():
            return float(retry_after)
        until, now = parsedate_to_datetime(retry_after), parsedate_to_datetime(date or "")
        return max((until - now).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
