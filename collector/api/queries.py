"""Query parameters: each known, each at most once, each checked by its name."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from starlette.requests import Request

from collector.errors import InvalidField
from contract.vocabulary import MAX_TEXT, TEXT_PATTERN

_TEXT = re.compile(TEXT_PATTERN)
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")


def single(
    request: Request, known: Collection[str], *, repeatable: str | None = None
) -> dict[str, str]:
    """The parameters by name; an unknown one, or one given twice, is refused, never ignored."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            taken = f"one of {', '.join(known)}" if known else "a parameter: this route has none"
            raise InvalidField.of(name[:MAX_TEXT], f"is not {taken}")
        if name in given and name != repeatable:
            raise InvalidField.of(name, "is given twice")
        given[name] = value
    return given


def text(name: str, given: dict[str, str]) -> str | None:
    """A value that a worker can have; any other would find nothing, or fail, by the store."""
    value = given.get(name)
    least = 1 if name == "agent_name" else 0  # the one that every worker has
    if value is not None and not (least <= len(value) <= MAX_TEXT and _TEXT.fullmatch(value)):
        raise InvalidField.of(
            name, f"must be {least} to {MAX_TEXT} characters, none of them control"
        )
    return value


def whole(given: dict[str, str], name: str, *, least: int, most: int, default: int) -> int:
    """A whole number within its limits."""
    if name not in given:
        return default
    text = given[name]
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else -1
    if not least <= value <= most:
        raise InvalidField.of(name, f"must be a whole number from {least} to {most}")
    return value


def yes(given: dict[str, str], name: str) -> bool:
    """Whether it is `true`; absent is `false`."""
    value = given.get(name, "false")
    if value not in ("true", "false"):
        raise InvalidField.of(name, "must be true or false")
    return value == "true"


def number(given: dict[str, str], name: str, *, least: float, most: float, default: float) -> float:
    """A plain decimal number within its limits."""
    if name not in given:
        return default
    value = float(given[name]) if _DECIMAL.fullmatch(given[name]) else math.nan
    if not least <= value <= most:
        raise InvalidField.of(name, f"must be a number from {least:g} to {most:.15g}")
    return value
