"""Server-sent events as they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from conformance import expect
from conformance.expect import Breach

FRAME_SECONDS = 10.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream."""

    event: str | None
    id: str | None
    data: Any

    @property
    def about(self) -> str | None:
        """Which worker it is about, if it is about one."""
        worker = self.data.get("worker") if isinstance(self.data, dict) else None
        return worker.get("agent_id") if isinstance(worker, dict) else None


class Stream:
    """The frames of one answer, read as they come."""

    def __init__(self, response: httpx2.Response) -> None:
        self.headers = response.headers
        self.retry: str | None = None
        self._response = response
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def reading(cls, response: httpx2.Response) -> AsyncIterator[Stream]:
        stream = cls(response)
        task = asyncio.create_task(stream._read())
        try:
            yield stream
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def next(self, seconds: float = FRAME_SECONDS) -> Frame:
        frame = await self._next(seconds)
        if frame is None:
            raise Breach("another frame", "the stream ended")
        return frame

    async def ended(self, seconds: float = FRAME_SECONDS) -> None:
        """Everything that still comes, until the stream ends; within so long."""
        async with expect.within(seconds, "the end of the stream"):
            while await self._next(seconds) is not None:
                pass

    async def until(
        self, agent_id: str, *types: str, seconds: float = FRAME_SECONDS
    ) -> tuple[Frame, list[Frame]]:
        """The next line of one of these types about this worker, and what else came before."""
        before: list[Frame] = []
        async with expect.within(seconds, f"{' or '.join(types)} of {agent_id}"):
            while True:
                frame = await self.next(seconds)
                if frame.event in types and frame.about == agent_id:
                    return frame, before
                before.append(frame)

    async def types(self, agent_id: str, *, last: str) -> list[str]:
        """The types of the lines about this worker, up to the first of that type."""
        types: list[str] = []
        async with expect.within(FRAME_SECONDS, f"{last} of {agent_id}"):
            while last not in types:
                frame = await self.next()
                if frame.about == agent_id:
                    types.append(str(frame.event))
        return types

    async def snapshot(self) -> tuple[list[Json], str]:
        """All chunks of the snapshot that comes now: its workers and its cursor."""
        workers: list[Json] = []
        while True:
            frame = await self.next()
            expect.equal(frame.event, "snapshot", "the frame's event")
            workers += frame.data["workers"]
            if not frame.data["more"]:
                return workers, str(frame.data["cursor"])
            expect.equal(frame.id, None, "the id of a chunk that is not the last")

    async def _next(self, seconds: float) -> Frame | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._frames.get()
        except TimeoutError:
            raise Breach(f"a frame within {seconds:g} s", "none") from None

    async def _read(self) -> None:
        fields: dict[str, str] = {}
        try:
            async for line in _lines(self._response):
                if line:
                    name, _, value = line.partition(":")
                    value = value.removeprefix(" ")
                    fields[name] = f"{fields[name]}\n{value}" if name in fields else value
                else:
                    self._take(fields)
                    fields = {}
        except httpx2.HTTPError:
            pass  # a stream that breaks off has ended too
        finally:
            self._frames.put_nowait(None)

    def _take(self, fields: dict[str, str]) -> None:
        self.retry = fields.get("retry", self.retry)
        if "data" in fields:
            data = json.loads(fields["data"])
            self._frames.put_nowait(Frame(fields.get("event"), fields.get("id"), data))


async def _lines(response: httpx2.Response) -> AsyncIterator[str]:
    """As event streams have them: other ends of lines that Unicode knows are plain text here."""
    rest = ""
    async for text in response.aiter_text():
        *whole, rest = (rest + text).replace("\r\n", "\n").split("\n")
        for line in whole:
            yield line
