"""Who may come in: minting keys, and telling whose key a presented one is.

A presented key is looked up by its digest in memory. Only one never seen before costs a row and an
argon2 run, once for all who present it at that moment, in a small pool with a bounded queue: a
verified key never waits behind an unverified one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from collector.clock import Clock, every
from collector.errors import NotActive, Overloaded, StoreError, Unauthenticated
from collector.look_ups import LookUps
from collector.metrics import Metrics
from collector.store.protocol import OPERATOR, Store
from collector.values import SECOND, Key, KeyChanges, Principal
from contract.vocabulary import (
    KEY_ALPHABET,
    KEY_ID_LENGTH,
    KEY_LENGTH,
    KEY_PATTERN,
    KEY_PREFIX,
    SCOPES,
    KeyState,
    Scope,
)

POLL_SECONDS = 1.0
# How well `last_used_at` is known.
USED_SECONDS = 60.0
CACHED_KEYS = 100_000
WRONG_KEYS = 10_000
WRONG_FOR = 10 * SECOND
# Presented keys that may wait to be verified, in all and for one public part; past it they are
# told to come back.
MAX_UNVERIFIED = 256
MAX_UNVERIFIED_SAME_ID = 16
# Keys that may wait to be made, beside those.
MAX_MINTING = 64
# How far the threads that verify keys stand back behind those that serve.
VERIFIERS_NICE = 10
# A thread that has found a wrong secret rests this many times as long as it worked for that: so
# guesses have half of what verifying may take.
RESTS = 1

REFUSED = "The key is unknown, revoked, expired or mistyped."

# Runs argon2 where no beat waits for it.
OffLoop = Callable[[Callable[[], tuple[Key, str]]], Awaitable[tuple[Key, str]]]

_SHAPE = re.compile(KEY_PATTERN)
_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1, type=Type.ID)


def mint(
    tenant_id: str,
    scopes: Iterable[Scope],
    *,
    now: int,
    name: str | None = None,
    expires_at: int | None = None,
) -> tuple[Key, str]:
    """A new key and its plaintext, which exists nowhere else."""
    secret = "".join(secrets.choice(KEY_ALPHABET) for _ in range(KEY_LENGTH))
    plaintext = KEY_PREFIX + secret
    held = set(scopes)
    key = Key(
        id=secret[:KEY_ID_LENGTH],
        tenant_id=tenant_id,
        name=name,
        digest=_hasher.hash(plaintext),
        scopes=tuple(scope for scope in SCOPES if scope in held),
        created_at=now,
        revoked_at=None,
        expires_at=expires_at,
    )
    return key, plaintext


async def create(
    store: Store,
    tenant_id: str,
    scopes: Iterable[Scope],
    *,
    now: int,
    name: str | None = None,
    expires_at: int | None = None,
    by: str = OPERATOR,
    most: int = 0,
    off_loop: OffLoop = asyncio.to_thread,
) -> tuple[Key, str]:
    """Mint a key and store it; a public part that is taken is drawn anew."""
    minting = partial(mint, tenant_id, tuple(scopes), now=now, name=name, expires_at=expires_at)
    while True:
        key, plaintext = await off_loop(minting)
        if await store.add_key(key, by=by, most=most):
            return key, plaintext


async def revoke(store: Store, key_id: str, *, now: int) -> bool:
    """The operator's revocation, of whichever tenant's key that is; False if there is none."""
    key = await store.find_key(key_id)
    return key is not None and await store.revoke_key(key.tenant_id, key_id, now=now)


async def rotate(
    store: Store,
    key: Key,
    *,
    overlap: int,
    now: int,
    lasting: int | None = None,
    by: str = OPERATOR,
    most: int = 0,
    off_loop: OffLoop = asyncio.to_thread,
) -> tuple[Key, str]:
    """A successor that may do the same for as long; the key itself goes on for the overlap."""
    _check_rotatable(key, now)
    if lasting is None and key.expires_at is not None:
        lasting = key.expires_at - key.created_at
    lasts_to = None if lasting is None else now + lasting
    minting = partial(mint, key.tenant_id, key.scopes, now=now, name=key.name, expires_at=lasts_to)
    while True:
        successor, plaintext = await off_loop(minting)
        ends_at = now + overlap
        if await store.replace_key(key.id, successor, expires_at=ends_at, by=by, most=most):
            return successor, plaintext


def _check_rotatable(key: Key, now: int) -> None:
    """Told before a successor is minted; the store decides."""
    if not key.is_active(now):
        raise NotActive(f"Key {key.id} is {state(key, now)}; mint another.")
    if key.successor_id is not None:
        raise NotActive(f"Key {key.id} was rotated already; {key.successor_id} is its successor.")


class Keyring:
    """Presented key → principal, for one process."""

    def __init__(self, store: Store, clock: Clock, metrics: Metrics, *, verifiers: int) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(verifiers, "key-verifier", _give_way)
        self._known: OrderedDict[bytes, Principal] = OrderedDict()
        # Of each of these, by its public part: a key has one secret, so all others are wrong.
        self._right: dict[str, bytes] = {}
        self._wrong: OrderedDict[bytes, int] = OrderedDict()
        # Keys that were presented with their right secret after their end: the log says whose.
        self._ended: OrderedDict[bytes, Principal] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[Principal | None]] = {}
        self._waiting: Counter[str] = Counter()
        self._minting = 0
        self._look_ups = LookUps(store)
        self._revision = -1
        self._used: set[str] = set()
        self._hits = 0
        metrics.tally(metrics.key_hit, self._take_hits)
        self._listeners: list[Callable[[KeyChanges], None]] = []

    def on_change(self, tell: Callable[[KeyChanges], None]) -> None:
        """Call `tell` with what changed about keys, within two seconds."""
        self._listeners.append(tell)

    async def open(self) -> None:
        self._revision = (await self._store.key_changes(since=self._revision)).revision

    async def close(self) -> None:
        with suppress(StoreError):
            await self.note_used()
        for task in list(self._under_way.values()):
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def known(self, digest: bytes, *, now: int) -> Principal | None:
        """Whose key has this digest, if that is known already and its time is not up."""
        principal = self._known.get(digest)
        return None if principal is None or principal.has_ended(now) else principal

    def hit(self, principal: Principal) -> None:
        """A known key was used."""
        self._hits += 1
        self.used(principal.key_id)

    def _take_hits(self) -> int:
        hits, self._hits = self._hits, 0
        return hits

    async def identify(self, presented: str, *, at: int | None = None) -> Principal:
        """Whose key this is; Unauthenticated if nobody's, or if it had ended by then."""
        shown = digest(presented)
        principal = self._known.get(shown)
        if principal is not None:
            self._hits += 1
        else:
            asked_at = self._clock.now() if at is None else at
            principal = await self._unknown(shown, presented, asked_at)
        if principal is None:
            raise Unauthenticated(REFUSED)
        # Compared at each use: a key ends in time also while the store can't be asked.
        if principal.has_ended(self._clock.now() if at is None else at):
            raise Unauthenticated(REFUSED, whose=principal.owner)
        self.used(principal.key_id)
        return principal

    def used(self, key_id: str) -> None:
        """That key was in use a moment ago; the store hears of it now and then."""
        self._used.add(key_id)

    async def mint(self, minting: Callable[[], tuple[Key, str]]) -> tuple[Key, str]:
        """Make a key where keys are verified, and after those that wait there."""
        if self._minting >= MAX_MINTING:
            raise Overloaded("Too many keys wait to be made.")
        self._minting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, minting)
        finally:
            self._minting -= 1

    async def follow(self) -> None:
        """Poll the key revision for ever: a revoked key is refused within two seconds."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(every(POLL_SECONDS, self.refresh, "the key revision was not read"))
            loops.create_task(every(USED_SECONDS, self.note_used, "the use of keys was not noted"))

    async def note_used(self) -> None:
        """Which keys were in use lately, in one write for all of them; if it fails, in the next."""
        used, self._used = self._used, set()
        try:
            if used:
                await self._store.use_keys(used, now=self._clock.now())
        except BaseException:
            self._used |= used
            raise

    async def refresh(self) -> None:
        """Forget what was known of keys that changed."""
        changes = await self._store.key_changes(since=self._revision)
        if changes.changed:
            for shown in [d for d, p in self._ended.items() if p.key_id in changes.changed]:
                del self._ended[shown]
            for key_id in changes.changed & self._right.keys():
                shown = self._right.pop(key_id)
                principal = self._known.pop(shown)
                if key_id in changes.revoked:
                    self._remember(shown, replace(principal, expires_at=0))
            self._wrong.clear()
            for tell in self._listeners:
                tell(changes)
        self._revision = changes.revision

    async def _unknown(self, digest: bytes, presented: str, at: int) -> Principal | None:
        key_id = presented.removeprefix(KEY_PREFIX)[:KEY_ID_LENGTH]
        ended = self._ended.get(digest)
        if ended or _SHAPE.fullmatch(presented) is None or self._is_wrong(digest, key_id):
            self._metrics.key_cache.labels("wrong").inc()
            return ended
        self._metrics.key_cache.labels("miss").inc()
        # A caller that goes away must not cancel the others' verification.
        return await asyncio.shield(
            self._under_way.get(digest) or self._start(digest, key_id, presented, at)
        )

    def _start(
        self, digest: bytes, key_id: str, presented: str, at: int
    ) -> asyncio.Task[Principal | None]:
        if len(self._under_way) >= MAX_UNVERIFIED:
            raise Overloaded("Too many keys wait to be verified.")
        if self._waiting[key_id] >= MAX_UNVERIFIED_SAME_ID:
            raise Overloaded("Too many attempts at this key wait to be verified.")
        self._waiting[key_id] += 1
        task = asyncio.create_task(self._verify(digest, key_id, presented, at))
        self._under_way[digest] = task
        task.add_done_callback(lambda _: self._finish(digest, key_id))
        return task

    def _finish(self, digest: bytes, key_id: str) -> None:
        del self._under_way[digest]
        self._waiting -= Counter([key_id])

    async def _verify(
        self, digest: bytes, key_id: str, presented: str, at: int
    ) -> Principal | None:
        principal = await self._principal(key_id, presented, at)
        # Nothing is awaited since the revision was compared: no revocation comes in between.
        self._remember(digest, principal)
        return principal

    async def _principal(self, key_id: str, presented: str, at: int) -> Principal | None:
        # A key that changes while it is being verified is looked at again.
        while True:
            revision = self._revision
            key = await self._look_ups.find(key_id)
            if key is None:
                return None
            # Whose key it was is for the log alone, and worth a digest when nobody else waits.
            if not key.is_active(at) and len(self._under_way) > 1:
                return None
            self._metrics.argon2_runs.inc()
            loop = asyncio.get_running_loop()
            if not await loop.run_in_executor(self._pool, _matches, key.digest, presented):
                return None
            if revision == self._revision:
                # When it expires is compared by each caller with its own time.
                ends_at = key.expires_at if key.revoked_at is None else 0
                return Principal(key.tenant_id, frozenset(key.scopes), key.id, ends_at)

    def _is_wrong(self, digest: bytes, key_id: str) -> bool:
        is_another = self._right.get(key_id, digest) != digest
        return is_another or self._wrong.get(digest, 0) > self._clock.now()

    def _remember(self, digest: bytes, principal: Principal | None) -> None:
        if principal is None:
            self._wrong[digest] = self._clock.now() + WRONG_FOR
            if len(self._wrong) > WRONG_KEYS:
                self._wrong.popitem(last=False)
        elif principal.has_ended(self._clock.now()):
            self._ended[digest] = principal
            if len(self._ended) > WRONG_KEYS:
                self._ended.popitem(last=False)
        else:
            self._known[digest] = principal
            self._right[principal.key_id] = digest
            if len(self._known) > CACHED_KEYS:
                _, oldest = self._known.popitem(last=False)
                del self._right[oldest.key_id]


def _give_way() -> None:
    """Beats go first on a busy machine; of all systems, Linux has priorities for threads."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), VERIFIERS_NICE)


def digest(presented: str) -> bytes:
    """What is kept of a presented key in memory."""
    return hashlib.sha256(presented.encode("utf-8", "replace")).digest()


def state(key: Key, now: int) -> KeyState:
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.is_active(now) else "expired"


def _matches(digest: str, presented: str) -> bool:
    # Its own processor time: a busy machine must not make it rest for longer.
    began = time.thread_time()
    with suppress(VerificationError, InvalidHashError):
        return _hasher.verify(digest, presented)
    time.sleep(RESTS * (time.thread_time() - began))
    return False
