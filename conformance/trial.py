"""What a case is given: callers of the target, names of its own, and the target's time."""

from __future__ import annotations

import itertools
import secrets
from copy import copy

import httpx2

from conformance.clocks import SECOND
from conformance.sockets import Address, Framing
from conformance.target import Control, Target
from conformance.wire import Caller, Posts, Reads


class Trial:
    """One run of all cases against one target."""

    def __init__(self, target: Target, http: httpx2.AsyncClient, address: Address) -> None:
        self.target = target
        self.reads = Reads()
        self.token = secrets.token_hex(4)
        self._http = http
        self._numbers = itertools.count(1)
        self._call(Posts(address))

    def framed(self, framing: Framing | None) -> Trial:
        """The same for one case, whose heartbeats are framed like this."""
        trial = copy(self)
        trial._call(Posts(self.posts.address, framing))
        return trial

    def _call(self, posts: Posts) -> None:
        target, self.posts = self.target, posts
        self.a = self.caller(target.keys.a)
        self.b = self.caller(target.keys.b)
        self.nobody = self.caller(None)
        # A case that has not said that it needs one of these must not use it.
        self.ingest = self.caller(target.keys.ingest)
        self.read = self.caller(target.keys.read)
        self.tenantless = self.caller(target.keys.tenantless)

    def caller(self, key: str | None) -> Caller:
        return Caller(self._http, key, self.reads, self.posts)

    def name(self, stem: str = "worker") -> str:
        """One that no other case has, in this run or another."""
        return f"{stem}-{self.token}-{next(self._numbers)}"

    def names(self, count: int, stem: str = "worker") -> list[str]:
        return [self.name(stem) for _ in range(count)]

    async def sleep(self, seconds: float) -> None:
        """Let so much of the target's time pass."""
        await self.target.clock.sleep(seconds)

    @property
    def control(self) -> Control:
        assert self.target.control is not None, "a case needs control and has not said so"
        return self.target.control

    async def away(self, seconds: float) -> None:
        """The collector does not listen for so long, and then does again."""
        await self.control.jump(round(seconds * SECOND))
        await self.control.listen()
