"""A heartbeat has two ways in: whatever is sent, nobody can tell by which one it went.

Each conversation is held twice, with a collector whose connections let beats in and with one where
every beat goes through the app, and all that is answered, stored, counted and logged is compared.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings

from collector import keys, quotas, sessions
from collector.api.wire import Protocol
from collector.logs import REQUESTS, caller, request_id
from collector.settings import Settings
from collector.store.open import store_for
from collector.store.protocol import Store
from collector.values import SECOND, Key, RosterQuery
from contract.vocabulary import SCOPES, Scope
from tests.conversations import (
    IDS,
    Conversation,
    KeyState,
    QuotaState,
    Step,
    conversations,
    exemplary,
    segments,
)
from tests.databases import TEMPLATE, Databases
from tests.factories import START
from tests.fleet import Fleet, TestClock

QUOTAS: dict[QuotaState, dict[str, int]] = {
    "none": {},
    "beats": {"max_beats_per_second": 1},
    "workers": {"max_workers": 1},
}
# When a key of these states ends, in seconds after the start; conversations begin at one.
ENDS: dict[KeyState, float] = {"expired": 0.5, "ending": 2.0}
# So many are drawn in a run of all tests, always the same; a number here draws new ones.
WANTED = os.environ.get("TWO_WAYS_EXAMPLES")
BOUNDED = settings(
    max_examples=int(WANTED or 150),
    derandomize=WANTED is None,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
SECONDS = 20
Line = tuple[str, str, str, str]
Reply = tuple[int, list[tuple[str, str]], bytes]


class Told(NamedTuple):
    """All that a conversation has led to."""

    replies: list[Reply]
    roster: object
    log: object
    counted: object
    outcomes: Counter[str]
    lines: list[Line]


class Ear(asyncio.Protocol):
    """A client that keeps all that it hears, also of a connection that is broken off."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, _exc: Exception | None) -> None:
        self.ended.set()


class Way:
    """Collectors over one store, one for each kind of quota, which let beats in by one way."""

    def __init__(self, store: Store, clock: TestClock, fleets: dict[QuotaState, Fleet]) -> None:
        self.store = store
        self._clock = clock
        self._fleets = fleets
        self.read: Counter[object] = Counter()
        self.lines: list[Line] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, store_url: str, fast_path: str) -> AsyncIterator[Way]:
        store, clock = store_for(Settings(store_url=store_url)), TestClock()
        await store.open(serving=True)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(store.close)
            fleets = {}
            for quota, limits in QUOTAS.items():
                running = Fleet.over(store, clock, fast_path=fast_path, **limits)
                fleets[quota] = await stack.enter_async_context(running)
            yield cls(store, clock, fleets)

    async def hold(self, talk: Conversation, tenant: str, key: Key, secret: str) -> Told:
        """Say all of it, and tell what came of it."""
        fleet = self._fleets[talk.quota]
        parts = fleet.app.state.parts
        # Nobody's time goes on between conversations: each begins at the same moment.
        self._clock._now = START
        credentials = await self._prepare(fleet, talk.key, key, secret)
        self._clock.move(1)
        before = _outcomes(parts)
        self.lines.clear()
        replies = await self._talk(fleet, talk, credentials)
        now = self._clock.now()
        return Told(
            replies=replies,
            roster=await self.store.roster(tenant, RosterQuery(), now=now),
            log=await self.store.events(tenant, after=0, limit=100),
            counted=_counted(parts, tenant, now),
            outcomes=_outcomes(parts) - before,
            # One that follows from an answer may come before the answer's.
            lines=sorted(self.lines),
        )

    async def _prepare(
        self, fleet: Fleet, state: KeyState, key: Key, secret: str
    ) -> tuple[tuple[str, str], ...]:
        parts = fleet.app.state.parts
        bearer = (("Authorization", f"Bearer {secret}"),)
        if state in ("absent", "malformed"):
            return bearer[:0] if state == "absent" else (("Authorization", "Bearer none"),)
        if state == "unknown":
            return bearer
        assert await self.store.add_key(key)
        # Now, and not by itself at any time later: nothing that is verified is forgotten again.
        await parts.keyring.refresh()
        if state == "cookie":
            signed_in = sessions.sign_in(
                self.store, key, browser="", now=START, lasting=60 * SECOND
            )
            return (("Cookie", f"presence_session={(await signed_in)[1]}"),)
        if state != "cold":
            await parts.keyring.identify(secret)
        if state == "revoked":
            gone = await fleet.http.delete(f"/v1/keys/{key.id}", headers=dict(bearer))
            assert gone.status_code == 204, gone.text
            await parts.keyring.refresh()
        return bearer

    async def _talk(
        self, fleet: Fleet, talk: Conversation, credentials: tuple[tuple[str, str], ...]
    ) -> list[Reply]:
        whole = b"".join(part for each in talk.requests for part in each.wire(credentials))
        assert talk.steps[-1].until == len(whole)
        loop, port = asyncio.get_running_loop(), urlsplit(fleet.url).port
        assert port is not None
        async with asyncio.timeout(SECONDS):
            transport, ear = await loop.create_connection(Ear, "127.0.0.1", port)
            try:
                connection = await self._accepted(fleet, transport)
                for segment, step in segments(whole, talk.steps):
                    if connection.transport.is_closing():
                        break
                    transport.write(segment)
                    is_last = step.until == len(whole)
                    await self._heed(connection, step, is_last or step.settles or step.pause > 0)
                    self._clock.move(step.pause)
                if connection._owes() and not connection.transport.is_closing():
                    # What is missing of a request does not come in time.
                    connection._end_late()
                elif not transport.is_closing():
                    transport.write_eof()
                await ear.ended.wait()
            finally:
                transport.abort()
        return _replies(bytes(ear.heard))

    async def _accepted(self, fleet: Fleet, transport: asyncio.Transport) -> Protocol:
        """The collector's end of the connection."""
        place = transport.get_extra_info("sockname")
        self.read[place] = 0
        found: list[Protocol] = []
        while not found:
            await asyncio.sleep(0)
            found = [each for each in fleet.connections if each.client == place]
        return found[0]

    async def _heed(self, connection: Protocol, step: Step, settles: bool) -> None:
        """Wait until the collector has read so much, and has done all that it can with it."""
        while not connection.transport.is_closing():
            has_read = self.read[connection.client] >= step.until
            if has_read and (not settles or _is_settled(connection)):
                return
            # It reads on once it has answered something.
            if connection.flow.read_paused and not settles:
                return
            await asyncio.sleep(0)


def _is_settled(connection: Protocol) -> bool:
    """Whether the collector has nothing to do but to wait for more."""
    if connection._half is not None:
        return True
    if connection.pipeline or connection._unparsed:
        return False
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:
        return True
    waiting = getattr(getattr(cycle, "message_event", None), "_waiters", ())
    return any(not each.done() for each in waiting)


def _outcomes(parts: Any) -> Counter[str]:
    """Beats by outcome."""
    found: Counter[str] = Counter()
    for metric in parts.metrics.beats.collect():
        for sample in metric.samples:
            if sample.name.endswith("_total"):
                found[sample.labels["outcome"]] = int(sample.value)
    return found


def _counted(parts: Any, tenant: str, now: int) -> object:
    """What the quotas have counted of that tenant."""
    crew = parts.quotas._crews.get(tenant)
    second, beats = parts.quotas._beats.get(tenant, (0, 0))
    return (
        beats if second == now // SECOND else 0,
        crew and (crew.size, dict(crew.known)),
    )


def _replies(heard: bytes) -> list[Reply]:
    found = []
    while heard:
        head, _, heard = heard.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [
            (name.lower(), value) for name, _, value in (each.partition(": ") for each in lines)
        ]
        length = int(dict(pairs).get("content-length", "0"))
        headers = sorted((name, _masked(name, value)) for name, value in pairs)
        found.append((int(first.split()[1]), headers, heard[:length]))
        heard = heard[length:]
    return found


def _masked(name: str, value: str) -> str:
    is_ours = name == "date" or (name == "x-request-id" and value not in IDS)
    return "(ours)" if is_ours else value


class Lines(logging.Handler):
    """What is logged of requests, by whichever way is talked to."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.into: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        # A body that its sender gave up is told of by the app alone, to those who look for faults.
        if not record.getMessage().endswith("was given up"):
            # A connection's own line is on nobody's behalf, whatever was answered just before.
            is_own = record.name == REQUESTS
            identity = request_id.get() if is_own and request_id.get() in IDS else "(fresh)"
            who = caller.get() if is_own else None
            self.into.append((record.levelname, record.getMessage(), identity, str(who)))


@contextmanager
def listening(ways: list[Way]) -> Iterator[Lines]:
    """Log lines, and how much each collector has read of each connection."""
    lines, receive = Lines(), Protocol.data_received

    def counting(connection: Protocol, data: bytes) -> None:
        for way in ways:
            if connection.client in way.read:
                way.read[connection.client] += len(data)
        receive(connection, data)

    loggers = [logging.getLogger(each) for each in (REQUESTS, "collector.api.connection")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protocol, "data_received", counting)
        for logger in loggers:
            patch.setattr(logger, "level", logging.DEBUG)
            logger.addHandler(lines)
        try:
            yield lines
        finally:
            for logger in loggers:
                logger.removeHandler(lines)


async def _compare(ways: list[Way], lines: Lines, tenant: str, talk: Conversation) -> None:
    scopes: tuple[Scope, ...] = ("read",) if talk.key == "read" else SCOPES
    ends = ENDS.get(talk.key)
    key, secret = keys.mint(
        tenant, scopes, now=START, expires_at=None if ends is None else START + int(ends * SECOND)
    )
    told = []
    for way in ways:
        lines.into = way.lines
        told.append(await way.hold(talk, tenant, key, secret))
    for name, at_once, by_the_app in zip(Told._fields, *told, strict=True):
        assert at_once == by_the_app, f"{name} of {talk}"


@pytest.fixture
def urls(backend: str, tmp_path: Path, migrated_file: Path, databases: Databases) -> list[str]:
    """Two fresh stores."""
    if backend == "selfhosted":
        return [f"sqlite:///{shutil.copy(migrated_file, tmp_path / f'{n}.db')}" for n in range(2)]
    return [asyncio.run(databases.made(backend, TEMPLATE)) for _ in range(2)]


def test_nobody_can_tell_which_way_a_heartbeat_went(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No count of the workers at a moment of its own, between two segments of one way alone.
    monkeypatch.setattr(quotas, "COUNT_EVERY_SECONDS", 3600.0)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            ways = [
                runner.run(stack.enter_async_context(Way.open(url, fast_path)))
                for url, fast_path in zip(urls, ("on", "off"), strict=True)
            ]
            numbers = count(1)
            with listening(ways) as lines:

                def hold(talk: Conversation) -> None:
                    runner.run(_compare(ways, lines, f"tenant-{next(numbers)}", talk))

                for talk in exemplary():
                    hold(talk)
                BOUNDED(given(conversations())(hold))()
        finally:
            runner.run(stack.aclose())
