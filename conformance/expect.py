"""How a case says what it expected and what it saw instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class Breach(Exception):
    """The contract is broken."""

    def __init__(self, expected: object, seen: object) -> None:
        super().__init__(f"expected {expected}, saw {seen}")
        self.expected = _text(expected)
        self.seen = _text(seen)


def equal(seen: object, expected: object, what: str = "") -> None:
    # True is 1 to Python, and not to JSON.
    if seen != expected or isinstance(seen, bool) != isinstance(expected, bool):
        prefix = f"{what}: " if what else ""
        raise Breach(f"{prefix}{_written(expected)}", f"{prefix}{_written(seen)}")


def true(holds: object, expected: object, seen: object) -> None:
    if not holds:
        raise Breach(expected, seen)


def fields(seen: dict[str, Any], **expected: object) -> None:
    """These fields have these values, all else is not looked at."""
    equal({name: seen.get(name, "(missing)") for name in expected}, expected)


def _written(value: object) -> str:
    """A set in order, so that two runs say the same."""
    if isinstance(value, set) and value:
        return "{" + ", ".join(sorted(map(repr, value))) + "}"
    return repr(value)


@asynccontextmanager
async def within(seconds: float, expected: str) -> AsyncIterator[None]:
    """What is in the block ends in time, or the contract is broken."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Breach(f"{expected} within {seconds:g} s", "not by then") from None


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
