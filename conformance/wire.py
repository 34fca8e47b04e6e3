"""HTTP and JSON as they are, for the cases: nothing here knows the collector's own models."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import quote

import httpx2

from conformance import expect
from conformance.answers import Answer
from conformance.sockets import Address, Framing, Line, chunked, chunks
from conformance.streams import Json, Stream

TTL_SECONDS = 45
HEARTBEAT = "/v1/agents/heartbeat"
ROSTER = "/v1/agents"
ABSENT = object()
# Many streams at once, and the requests beside them.
LIMITS = httpx2.Limits(max_connections=900, max_keepalive_connections=64)
# A server of somebody else's gets fewer, so that no answer is late for our load alone; and a new
# one for each request: some end a connection after an error, and the next request on it with it.
FOREIGN_LIMITS = httpx2.Limits(max_connections=64, max_keepalive_connections=0)
# Connections of the suite's own sockets, beside those.
SOCKETS, FOREIGN_SOCKETS = 128, 32
# How long a target may take for one answer.
TIMEOUT = httpx2.Timeout(20, pool=60)


def no_cookies() -> CookieJar:
    """A jar that keeps nothing: callers share connections, and a cookie is one caller's."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


@dataclass(slots=True)
class Reads:
    """What every roster that was read says of R5, whichever case read it."""

    judged: int = 0
    wrong: list[str] = field(default_factory=list)

    def judge(self, roster: Any) -> None:
        """Only a roster that says when it was read can be judged."""
        moment = roster.get("server_time") if isinstance(roster, dict) else None
        if not isinstance(moment, int | float):
            return
        for worker in roster.get("workers", []):
            silent = _microseconds(moment) - _microseconds(worker["last_seen"])
            is_lost = silent > TTL_SECONDS * 1_000_000
            is_offline = worker["status"] == "offline" and worker.get("reason") != "left"
            self.judged += 1
            if is_lost != is_offline and worker.get("reason") != "left":
                self.wrong.append(
                    f"{worker['agent_id']} is {worker['status']} after {silent / 1e6:.6f} s"
                )


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


@dataclass(slots=True)
class Posts:
    """How a case's heartbeats are sent, and what was answered to each, in their order."""

    address: Address
    # None leaves it to the HTTP client.
    framing: Framing | None = None
    gists: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever holds this key; None holds none."""

    http: httpx2.AsyncClient
    key: str | None
    reads: Reads
    posts: Posts
    # A browser's, as `name=token`.
    cookie: str | None = None

    async def send(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **given: Any
    ) -> Answer:
        response = await self.http.request(
            method, path, headers=self._headers() | (headers or {}), **given
        )
        return Answer(f"{method} {path}", response.status_code, response.headers, response.text)

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.send("GET", path, params=query)

    async def post(
        self,
        body: bytes | Json | list[Any],
        *,
        headers: dict[str, str] | None = None,
        announced: bool = True,
    ) -> Answer:
        """A heartbeat: bytes as they are, anything else as JSON; framed as the case is."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        place = len(self.posts.gists)
        self.posts.gists.append("(no answer)")
        answer = await self._post(content, headers or {}, announced)
        self.posts.gists[place] = answer.gist
        return answer

    async def _post(self, content: bytes, headers: dict[str, str], announced: bool) -> Answer:
        address, framing = self.posts.address, self.posts.framing
        if framing is None:
            given = content if announced else _chunks(content)
            return await self.send("POST", HEARTBEAT, headers=headers, content=given)
        length = {"Content-Length": str(len(content))}
        told = self._headers() | (length if announced else {"Transfer-Encoding": "chunked"})
        head = address.head("POST", HEARTBEAT, (told | headers).items())
        framed = content if announced else chunked(content)
        async with address.connected() as line:
            return await line.exchange(f"POST {HEARTBEAT}", *framing.cut(head, framed))

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        """A connection, for a case that cuts its heartbeats itself."""
        async with self.posts.address.connected() as line:
            yield line

    @asynccontextmanager
    async def unread(self, path: str) -> AsyncIterator[None]:
        """A GET whose answer nobody reads."""
        address = self.posts.address
        async with address.unread(address.head("GET", path, self._headers().items())):
            yield

    def request(self, body: Json, *extra: tuple[str, str]) -> tuple[bytes, bytes]:
        """A heartbeat's head and body, as they stand on the wire."""
        content = json.dumps(body).encode()
        headers = [*self._headers().items(), ("Content-Length", str(len(content))), *extra]
        return self.posts.address.head("POST", HEARTBEAT, headers), content

    async def beat(self, agent_id: str, **fields: Any) -> Answer:
        """A heartbeat, whatever becomes of it."""
        return await self.post(body(agent_id, **fields))

    async def beats(self, agent_id: str, **fields: Any) -> Json:
        """A heartbeat that is accepted."""
        accepted: Json = (await self.beat(agent_id, **fields)).was(202).json
        return accepted

    async def roster(self, **query: Any) -> Json:
        """The whole answer of `GET /v1/agents`."""
        roster: Json = (await self.get(ROSTER, **query)).was(200).json
        self.reads.judge(roster)
        return roster

    async def workers(self, *agent_ids: str, **query: Any) -> list[Json]:
        """Those of the roster with these ids, in its order; all of them if none is named."""
        found: list[Json] = (await self.roster(**query))["workers"]
        return [each for each in found if not agent_ids or each.get("agent_id") in agent_ids]

    async def worker(self, agent_id: str) -> Json:
        """The one of the roster with this id."""
        found = await self.workers(agent_id)
        expect.equal(len(found), 1, f"workers with the id {agent_id}")
        return found[0]

    async def events(self, after: str | None = None, **query: Any) -> tuple[list[Json], str]:
        """What `GET /v1/events` tells, and the cursor to go on from."""
        given = query if after is None else {"after": after, **query}
        told = (await self.get("/v1/events", **given)).was(200).json
        return told["events"], told["cursor"]

    async def lines(self, after: str, *agent_ids: str) -> list[Json]:
        """All lines since that cursor, of these workers alone."""
        found: list[Json] = []
        while True:
            page, cursor = await self.events(after)
            if not page:
                return [line for line in found if line["worker"]["agent_id"] in agent_ids]
            expect.true(cursor != after, "a cursor past what was told", cursor)
            found += page
            after = cursor

    async def cursor(self) -> str:
        """Where the log stands now."""
        return (await self.events(last=0))[1]

    @asynccontextmanager
    async def stream(
        self, path: str = "/events", *, last: str | None = None, **query: Any
    ) -> AsyncIterator[Stream]:
        """An open stream of events."""
        headers = self._headers() | ({} if last is None else {"Last-Event-ID": last})
        timeout = httpx2.Timeout(20, pool=60, read=None)
        async with self.http.stream(
            "GET", path, headers=headers, params=query, timeout=timeout
        ) as response:
            if response.status_code != 200:
                await response.aread()
            Answer(f"GET {path}", response.status_code, response.headers, "").was(200)
            async with Stream.reading(response) as stream:
                yield stream

    def _headers(self) -> dict[str, str]:
        bearer = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return bearer if self.cookie is None else bearer | {"Cookie": self.cookie}


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    for part in chunks(content):
        yield part


def body(agent_id: Any, **fields: Any) -> Json:
    """A small heartbeat; a field that is ABSENT is left out.

    It has a `ts` as every real worker's has: a server that can't do without breaks the one claim
    about that, and not all of them.
    """
    small = {"agent_id": agent_id, "agent_name": "conformance", "status": "idle"}
    whole = small | {"ts": time.time()} | fields
    return {name: value for name, value in whole.items() if value is not ABSENT}


def address(agent_id: str, rest: str = "") -> str:
    """The worker's own path: its id is one segment."""
    return f"{ROSTER}/{quote(agent_id, safe='')}{rest}"
