"""The process that makes large documents: `python -m collector.reader_process FD`.

To read a large roster and to encode it takes the interpreter for long, and in the process that
serves, beats would wait for it: threads share one interpreter. Questions come by a socket, pieces
of the answers go back as they are made. The store is the one that COLLECTOR_STORE_URL names. The
process ends when the socket does.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import signal
import socket
import struct
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from collector import documents
from collector.documents import Question
from collector.errors import StoreError
from collector.frugal import be_frugal
from collector.settings import Settings
from collector.store.open import store_for
from collector.store.protocol import Store

# A frame begins with its length, the question's number and the frame's kind.
HEAD: Final = struct.Struct("!IIB")
# ASKED is a question. PIECE is part of an answer; FACTS or FAULT ends it.
ASKED, PIECE, FACTS, FAULT = range(4)
# So many documents are made at once: each holds its workers in memory.
AT_ONCE: Final = 2


def framed(number: int, what: int, content: bytes) -> bytes:
    return HEAD.pack(len(content), number, what) + content


def packed(value: Any) -> bytes:
    return marshal.dumps(value)


def unpacked(content: bytes) -> Any:
    """The value in a frame. Only the two ends of one socket ever speak here."""
    return marshal.loads(content)  # noqa: S302


class Answerer:
    """Answers the questions of one link."""

    def __init__(self, store: Store, link: asyncio.StreamWriter) -> None:
        self._store = store
        self._link = link

    async def answer(self, number: int, packed_question: tuple[Any, ...], now: int) -> None:
        try:
            what, said = FACTS, await self._make(number, packed_question, now)
        except StoreError as error:
            what, said = FAULT, (type(error).__name__, error.detail)
        except Exception:
            what, said = FAULT, ("", traceback.format_exc())
        self._link.write(framed(number, what, packed(said)))
        await self._link.drain()

    async def _make(self, number: int, packed_question: tuple[Any, ...], now: int) -> Any:
        question = Question.unpacked(*packed_question)
        found = await documents.find(self._store, question, now=now)
        for piece in documents.pieces(question, found, now=now):
            self._link.write(framed(number, PIECE, piece))
            await self._link.drain()
            # The other documents have their turn.
            await asyncio.sleep(0)
        workers, position, last, standings = documents.facts(question, found)
        # In plain tuples: only those can be packed.
        return workers, position and tuple(position), last, standings


async def serve(ours: socket.socket, store: Store) -> None:
    """Answer until no more questions can come."""
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    answerer, under_way = Answerer(store, writer), set[asyncio.Task[None]]()
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length, number, _ = HEAD.unpack(await reader.readexactly(HEAD.size))
            question, now = unpacked(await reader.readexactly(length))
            task = asyncio.create_task(answerer.answer(number, question, now))
            under_way.add(task)
            task.add_done_callback(under_way.discard)


def main(descriptor: str) -> None:
    # A stop of everybody at once means the collector, which ends this process by itself.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    be_frugal()
    settings = Settings.from_environment(os.environ)
    store = store_for(replace(settings, pool_size=AT_ONCE))
    asyncio.run(serve(socket.socket(fileno=int(descriptor)), store))


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Whatever a statement still waits for, nobody is left who would want its rows.
    os._exit(0)
