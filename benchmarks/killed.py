"""The collector that `benchmarks.kill` kills: `python -m benchmarks.killed MARK honest|early`.

Its store is the real one behind a proxy that marks when a commit is under way. With `early` the
proxy answers before it commits: the defect that the proof has to be able to see.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from starlette.types import ASGIApp

from benchmarks.exchange import serve
from benchmarks.mark import Mark
from collector.app import create_app
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import Beat

EARLY_BY_SECONDS = 0.005
EARLY_BATCHES = 2


class Marked:
    """A store whose commits can be seen from outside; everything else passes through."""

    def __init__(self, store: Store, mark: Mark) -> None:
        self._store = store
        self._mark = mark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        # The intake has one writer: commits never overlap, and one byte is enough.
        with self._mark:
            return await self._store.commit(beats, now=now, gone=gone)


class Early(Marked):
    """Answers at once and commits a little later, in order, a few batches behind at most."""

    def __init__(self, store: Store, mark: Mark) -> None:
        super().__init__(store, mark)
        self._behind: asyncio.Queue[tuple[Sequence[Beat], int, int]] = asyncio.Queue(EARLY_BATCHES)
        self._catching_up: asyncio.Task[None] | None = None

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        self._catching_up = self._catching_up or asyncio.create_task(self._catch_up())
        await self._behind.put((beats, now, gone))
        return frozenset()

    async def _catch_up(self) -> None:
        while True:
            beats, now, gone = await self._behind.get()
            await asyncio.sleep(EARLY_BY_SECONDS)
            await super().commit(beats, now=now, gone=gone)


def main(path: str, answers: str) -> None:
    proxy = {"honest": Marked, "early": Early}[answers]
    mark = Mark(Path(path))

    def build(settings: Settings, store: Store) -> ASGIApp:
        return create_app(settings, store=cast(Store, proxy(store, mark)))

    serve(build)


if __name__ == "__main__":
    main(*sys.argv[1:])
