"""Browsers that signed in: making a session, and telling whose a presented token is.

A session stands for its key and ends with it. The browser alone has the token; here and in the
store is its digest. What was found is believed for a second, so that the many requests of one page
cost one read.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from collector.clock import Clock
from collector.errors import Overloaded, Unauthenticated
from collector.store.protocol import Store
from collector.values import NEVER, Key, KeyChanges, Principal, Session
from contract.vocabulary import (
    KEY_ALPHABET,
    MAX_SESSIONS,
    SESSION_ID_LENGTH,
    SESSION_TOKEN_BYTES,
    SESSION_TOKEN_PATTERN,
)

# A session that is ended elsewhere is refused after so long.
BELIEVED_SECONDS = 1.0
CACHED_SESSIONS = 10_000
# Tokens that may wait to be looked up; past it they are told to come back.
MAX_WAITING = 256
# Look-ups leave the store's connections to everybody else.
LOOK_UPS = 2
NO_SESSION = "There is no such session, or it is over; sign in again."

# Of each pair the first that the User-Agent has: most name their ancestors too.
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS = (
    ("iPhone", "iOS"),
    ("iPad", "iPadOS"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)
_SHAPE = re.compile(SESSION_TOKEN_PATTERN)


class Believed(NamedTuple):
    """A session that was found, and until when that is good enough, by the monotonic clock."""

    principal: Principal
    until: float


async def sign_in(
    store: Store, key: Key, *, browser: str, now: int, lasting: int
) -> tuple[Session, str]:
    """A new session of that key and its token, which exists nowhere else."""
    while True:
        token = secrets.token_urlsafe(SESSION_TOKEN_BYTES)
        session = Session(
            digest=digest_of(token),
            id="".join(secrets.choice(KEY_ALPHABET) for _ in range(SESSION_ID_LENGTH)),
            tenant_id=key.tenant_id,
            key_id=key.id,
            browser=browser,
            created_at=now,
            expires_at=min(now + lasting, NEVER if key.expires_at is None else key.expires_at),
        )
        if await store.add_session(session, most=MAX_SESSIONS):
            return session, token


def digest_of(token: str) -> str:
    """A token is as random as any digest: nothing slower is needed to hide it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def ends_at(session: Session, key: Key) -> int:
    """Its own end or its key's, which may have come sooner by a rotation."""
    return session.expires_at if key.expires_at is None else min(session.expires_at, key.expires_at)


def browser_of(user_agent: str) -> str:
    """A few words of ours, and nothing else of what was sent."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "A browser")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), None)
    return browser if system is None else f"{browser} on {system}"


class Sessions:
    """Presented token → principal, for one process."""

    def __init__(self, store: Store, clock: Clock, *, used: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._used = used
        self._known: OrderedDict[str, Believed] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[Principal | None]] = {}
        self._look_ups = asyncio.Semaphore(LOOK_UPS)

    async def identify(self, token: str) -> Principal:
        """Whose session this is; Unauthenticated if nobody's."""
        digest = digest_of(token)
        known = self._known.get(digest)
        if known is not None and time.monotonic() < known.until:
            principal: Principal | None = known.principal
        elif _SHAPE.fullmatch(token) is None:
            principal = None
        else:
            # A caller that goes away must not cancel the others' look-up.
            principal = await asyncio.shield(self._under_way.get(digest) or self._start(digest))
        # Compared at each use, like a key's end.
        if principal is None:
            raise Unauthenticated(NO_SESSION)
        if principal.has_ended(self._clock.now()):
            raise Unauthenticated(NO_SESSION, whose=principal.owner)
        self._used(principal.key_id)
        return principal

    def heed(self, changes: KeyChanges) -> None:
        """Look sessions up again whose key changed."""
        self._forget(lambda principal: principal.key_id in changes.changed)

    def forget(self, session_id: str) -> None:
        """It was ended here: nobody has to wait for that to be noticed."""
        self._forget(lambda principal: principal.session_id == session_id)

    def _forget(self, is_meant: Callable[[Principal], bool]) -> None:
        meant = [digest for digest, each in self._known.items() if is_meant(each.principal)]
        for digest in meant:
            del self._known[digest]

    def _start(self, digest: str) -> asyncio.Task[Principal | None]:
        if len(self._under_way) >= MAX_WAITING:
            raise Overloaded("Too many sessions wait to be looked up.")
        task = asyncio.create_task(self._look_up(digest))
        self._under_way[digest] = task
        task.add_done_callback(lambda _: self._under_way.pop(digest))
        return task

    async def _look_up(self, digest: str) -> Principal | None:
        async with self._look_ups:
            # Taken before the read: it tells what was so then.
            until = time.monotonic() + BELIEVED_SECONDS
            found = await self._store.find_session(digest, now=self._clock.now())
        self._known.pop(digest, None)
        if found is None:
            return None
        session, key = found
        scopes, end = frozenset(key.scopes), ends_at(session, key)
        principal = Principal(key.tenant_id, scopes, key.id, end, session.id)
        self._known[digest] = Believed(principal, until)
        while len(self._known) > CACHED_SESSIONS:
            self._known.popitem(last=False)
        return principal
