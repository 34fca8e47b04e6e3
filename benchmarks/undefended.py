"""A collector without one of its defences: `python -m benchmarks.undefended DEFENCE`.

All else is what users run. An attack that this collector withstands too would prove nothing of the
defence, so `benchmarks.door` makes each attack on one of these as well.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Literal, TypeVar, cast
from unittest.mock import patch

from starlette.types import ASGIApp

from benchmarks.exchange import Build, serve
from collector import app, intake, reads
from collector.api import connection, events, health, large
from collector.app import create_app
from collector.cli.watchdog import Watchdog
from collector.errors import StoreUnavailable
from collector.settings import Settings, variable
from collector.store.protocol import Store
from collector.values import Beat, Gap

Defence = Literal[
    "bound on pipelining",
    "bound on heads",
    "deadline of a request",
    "bound on a commit",
    "look at what hangs",
    "end of a stop",
    "share of reads",
]
T = TypeVar("T")
ENDLESS: Final = 1 << 60
# In seconds: no attack takes as long.
A_DAY: Final = 86_400
# A store that is not there is asked again after this long.
AGAIN_SECONDS: Final = 0.05


class Patient:
    """A store that never says that it can't be reached: its writer waits, for ever."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        return await _patiently(lambda: self._store.commit(beats, now=now, gone=gone))

    async def listen(self, collector_id: str, *, now: int) -> Gap | None:
        return await _patiently(lambda: self._store.listen(collector_id, now=now))


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await work()
        except StoreUnavailable:
            await asyncio.sleep(AGAIN_SECONDS)


def as_it_is(settings: Settings, store: Store) -> ASGIApp:
    return create_app(settings, store=store)


def without_a_bound_on_commits(settings: Settings, store: Store) -> ASGIApp:
    return create_app(settings, store=cast(Store, Patient(store)))


def _unbounded_commits() -> AbstractContextManager[object]:
    # Beside the store's own bounds, which `Patient` undoes.
    return patch.object(intake, "COMMIT_SECONDS", A_DAY)


@contextmanager
def _blind_readiness() -> Iterator[None]:
    with _unbounded_commits(), patch.multiple(health, COMMIT_HANGS=ENDLESS, GAP=ENDLESS):
        yield


@contextmanager
def _unshared_reads() -> Iterator[None]:
    """Every roster is read and encoded here, at once and whole, whoever asks and how often."""
    plenty = {variable(name): str(A_DAY) for name in ("reads", "read_megabytes")}
    with (
        patch.dict(os.environ, plenty),
        patch.object(reads, "SMALL_WORKERS", ENDLESS),
        patch.object(large, "PART_BYTES", ENDLESS),
        patch.object(events, "SMALL_BYTES", ENDLESS),
        patch.object(app, "REQUESTS_A_TURN", ENDLESS),
    ):
        yield


@contextmanager
def _endless_stop() -> Iterator[None]:
    with _unbounded_commits(), patch.object(Watchdog, "start", lambda _: None):
        yield


# Where nothing fails, only its age shows that something hangs, and only the watchdog ends a stop:
# each is taken away from a collector whose commits have no bound.
PATIENT: tuple[Defence, ...] = ("bound on a commit", "look at what hangs", "end of a stop")

# Each is patched by its name, so that a defence that is no longer there by that name is an error.
WITHOUT: dict[Defence, Callable[[], AbstractContextManager[object]]] = {
    "bound on pipelining": lambda: patch.object(connection, "MAX_PIPELINED", ENDLESS),
    "bound on heads": lambda: patch.multiple(
        connection, MAX_HEAD_BYTES=ENDLESS, MAX_HEADERS=ENDLESS
    ),
    "deadline of a request": lambda: patch.dict(
        os.environ, {variable("request_seconds"): str(A_DAY)}
    ),
    "bound on a commit": lambda: _unbounded_commits(),
    "look at what hangs": lambda: _blind_readiness(),
    "end of a stop": lambda: _endless_stop(),
    "share of reads": lambda: _unshared_reads(),
}


def main(name: str) -> None:
    without = cast(Defence, name)
    build: Build = without_a_bound_on_commits if without in PATIENT else as_it_is
    with WITHOUT[without]():
        serve(build)


if __name__ == "__main__":
    main(*sys.argv[1:])
