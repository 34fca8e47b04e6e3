"""What a worker has in hand: its sessions, and what its host says besides."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from contract.vocabulary import Status


class Load:
    """Counts exactly, whatever threads, tasks and signal handlers do at once.

    It has no lock that one of them could be caught with: what is open is a set, and to add to a set
    or to take from it is one step of the interpreter.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._open: set[object] = set()
        self._is_busy = False

    @property
    def sessions(self) -> int:
        return len(self._open)

    @property
    def status(self) -> Status:
        return "busy" if self._open or self._is_busy else "idle"

    def enter(self, token: object) -> None:
        self._open.add(token)
        self._on_change()

    def leave(self, token: object) -> None:
        self._open.discard(token)
        self._on_change()

    def set_busy(self, is_busy: bool) -> None:
        self._is_busy = is_busy
        self._on_change()

    def let_go(self) -> None:
        """In a fork's child: what still ends here is the parent's, and moves nothing."""
        self._on_change = _nothing


def _nothing() -> None: ...


class Session:
    """One piece of work in hand, from its enter to its exit; for `with` and for `async with`."""

    def __init__(self, load: Callable[[], Load]) -> None:
        self._load_now = load
        # Each enter is a piece of work of its own, also of one object in several hands. A fork's
        # child has a load of its own: what it inherited ends in the one it began in.
        self._entered: list[tuple[Load, object]] = []

    def __enter__(self) -> Session:
        load, token = self._load_now(), object()
        self._entered.append((load, token))
        load.enter(token)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._entered:
            load, token = self._entered.pop()
            load.leave(token)

    async def __aenter__(self) -> Session:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
