"""How a case says what it expected and what it saw instead."""

from __future__ import annotations

from typing import Any

LONGEST = 400


class Breach(Exception):
    """The contract is broken."""

    def __init__(self, expected: object, seen: object) -> None:
        super().__init__(f"expected {expected}, saw {seen}")
        self.expected = shown(expected)
        self.seen = shown(seen)


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


def shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
