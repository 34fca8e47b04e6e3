"""Log lines: for people on a terminal, JSON otherwise; each with who asked, never with a key.

Text of others stands in them, such as a path or an agent_id. Keys are cut out of it first, then
what could end a line or turn it around is escaped: so no line is forged.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from contextvars import Context, ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import NamedTuple

from collector.errors import CollectorError
from collector.escapes import json_line, printable
from collector.redaction import redacted

request_id: ContextVar[str] = ContextVar("request_id", default="-")
# The tenant and the key's id, once they are known.
caller: ContextVar[tuple[str, str] | None] = ContextVar("caller", default=None)
# The error that the request is refused with.
refusal: ContextVar[CollectorError | None] = ContextVar("refusal", default=None)
# Whose beat the request is, once its body was read.
agent: ContextVar[str | None] = ContextVar("agent", default=None)

REQUESTS = "collector.request"
# Of lines of one kind so many are told each in this time; the others are counted.
FLOOD_SECONDS = 10.0
TOLD_EACH = 10

Place = tuple[str, int]
ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)
Kind = int | tuple[str, int, Place | None]

# These fields stand on a refusal's line beside its message.
_FACTS = ("code", "fields", "peer", "agent_id")
_PLAIN = re.compile(r"[\w.:,/-]+", re.ASCII)


class Formatter(logging.Formatter):
    """One line: time, level, request id, caller, message, facts; a traceback is indented below."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s %(levelname)-7s [%(request_id)s%(caller)s] %(name)s: %(message)s"
        )

    def format(self, record: logging.LogRecord) -> str:
        who = caller.get()
        record.request_id = request_id.get()
        record.caller = "" if who is None else f" {who[0]} {who[1]}"
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        told = "".join(f" {name}={_word(value)}" for name, value in _facts(record).items())
        record.message = printable(redacted(record.message)) + told
        return super().formatMessage(record)

    def formatException(self, ei: ExceptionInfo) -> str:
        lines = redacted(super().formatException(ei)).split("\n")
        return "\n".join(f"  {printable(line)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        tenant, key_id = caller.get() or (None, None)
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
            "request_id": request_id.get(),
            "tenant": tenant,
            "key_id": key_id,
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return json_line(line)


def _facts(record: logging.LogRecord) -> dict[str, str | list[str]]:
    """Return the record's facts, with keys cut out."""
    facts: dict[str, str | list[str]] = {}
    for name in _FACTS:
        value = getattr(record, name, None)
        if isinstance(value, str):
            facts[name] = redacted(value)
        elif value:
            facts[name] = [redacted(each) for each in value]
    return facts


def _word(value: str | list[str]) -> str:
    """One word of a line: what has a space in it, or anything else unusual, stands in quotes."""
    text = value if isinstance(value, str) else ",".join(value)
    return text if _PLAIN.fullmatch(text) else json_line(text)


class Counted(NamedTuple):
    """Lines of one kind: how many, how grave, and the newest that was not told."""

    lines: int
    level: int
    newest: str


class Flood(logging.Filter):
    """Lets the first few lines of a kind through, and counts the rest.

    Refusals are of one kind if they have one status. Warnings and errors are of one kind if they
    were logged at one place, and failed at one: so a second defect is seen beside a first one, and
    there are never more kinds than places in the code.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[Kind, Counted] = {}
        self._since = time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = _kind(record)
        if kind is None:
            return True
        if time.monotonic() - self._since > FLOOD_SECONDS:
            self.sum_up()
        counted = self._seen.setdefault(kind, Counted(0, record.levelno, ""))
        message = "" if counted.lines < TOLD_EACH else record.getMessage()
        self._seen[kind] = Counted(counted.lines + 1, record.levelno, message)
        return counted.lines < TOLD_EACH

    def sum_up(self) -> None:
        """Say how many were not told, and begin anew."""
        seen, self._seen = self._seen, {}
        since, self._since = self._since, time.monotonic()
        for kind, counted in seen.items():
            if counted.lines > TOLD_EACH:
                # Outside of any request: the one whose line came now is not who is meant.
                Context().run(_tell_rest, kind, counted, self._since - since)


def _tell_rest(kind: Kind, counted: Counted, seconds: float) -> None:
    rest = counted.lines - TOLD_EACH
    if isinstance(kind, int):
        line = f"{rest} more requests were answered {kind} in the last {seconds:.0f} s"
    else:
        line = f"{rest} more like this in the last {seconds:.0f} s: {counted.newest}"
    logging.getLogger(REQUESTS).log(counted.level, "%s", line, extra={"sums_up": True})


def _kind(record: logging.LogRecord) -> Kind | None:
    """What floods are made of; None is always told."""
    status: int = getattr(record, "status", 0)
    if status:
        return status if status >= 400 else None
    if record.levelno < logging.WARNING or hasattr(record, "sums_up"):
        return None
    return record.pathname, record.lineno, _failed_at(record)


def _failed_at(record: logging.LogRecord) -> Place | None:
    place = record.exc_info[2] if record.exc_info else None
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place and (place.tb_frame.f_code.co_filename, place.tb_lineno)


flood = Flood()


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn takes it for a defect of ours that a reader who takes nothing is given up."""
    return record.msg != "ASGI callable returned without completing response."


def configure(level: str, how: str = "auto") -> None:
    """Send every logger's lines through one formatter, to standard error."""
    is_for_people = how == "text" or (how == "auto" and sys.stderr.isatty())
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(Formatter() if is_for_people else JsonFormatter())
    stream.addFilter(flood)
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    # It announces each of its plugins at every migration.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
