"""Answers that hold a whole roster: sent a piece at a time, with a turn for others in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from collector.documents import Document, Question
from collector.reads import Reads
from collector.turns import Turns

# A connection is given so much at once.
PART_BYTES: Final = 128 * 1024
# Up to this length a chunk of a stream waits for no turn: most are some hundred bytes.
SMALL_BYTES: Final = 16 * 1024
# A reader that takes longer for one part holds its tenant's place, and is given up.
PART_SECONDS: Final = 10


class LargeResponse(Response):
    """A JSON document in pieces, and what is let go of once the last one is sent."""

    def __init__(self, pieces: Sequence[bytes], turns: Turns, held: AsyncExitStack) -> None:
        super().__init__(media_type="application/json")
        self.headers["content-length"] = str(sum(map(len, pieces)))
        self._pieces = pieces
        self._turns = turns
        self._held = held

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        async with self._held:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            try:
                await send_in_turns(self._pieces, self._turns, send)
            except TimeoutError:
                raise ClientDisconnect from None
            await send({"type": "http.response.body"})


async def held_document(reads: Reads, question: Question) -> tuple[Document, AsyncExitStack]:
    """The document, and its place, which a LargeResponse keeps until the answer is sent."""
    async with AsyncExitStack() as held:
        document = await held.enter_async_context(reads.document(question))
        return document, held.pop_all()


async def send_in_turns(
    pieces: Iterable[bytes],
    turns: Turns,
    send: Send,
    *,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Send all of it, as long as it is wanted, and the answer goes on.

    Raise TimeoutError if its reader takes too long.
    """
    for part in parts(pieces):
        await turns.take()
        if not is_wanted():
            return
        async with asyncio.timeout(PART_SECONDS):
            await send({"type": "http.response.body", "body": part, "more_body": True})


def parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in parts of PART_BYTES, but for the last: each is one system call."""
    waiting: list[bytes] = []
    length = 0
    for piece in pieces:
        start = 0
        while length + len(piece) - start >= PART_BYTES:
            end = start + PART_BYTES - length
            yield b"".join((*waiting, piece[start:end]))
            waiting, length, start = [], 0, end
        waiting.append(piece[start:])
        length += len(piece) - start
    if length:
        yield b"".join(waiting)
