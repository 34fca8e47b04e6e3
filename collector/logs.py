"""Log lines: for people on a terminal, JSON otherwise; each with who asked, never with a key."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections import Counter
from contextvars import ContextVar
from datetime import UTC, datetime

from contract.vocabulary import KEY_PREFIX

request_id: ContextVar[str] = ContextVar("request_id", default="-")
# The tenant and the key's id, once they are known.
caller: ContextVar[tuple[str, str] | None] = ContextVar("caller", default=None)

REQUESTS = "collector.request"
# Of one kind of refusal so many are told each in this time; the others are counted.
FLOOD_SECONDS = 10.0
TOLD_EACH = 10

# Anything that begins like a key, so that a mistyped one is hidden too.
_KEY = re.compile(rf"{KEY_PREFIX}[A-Za-z0-9]+")


class Formatter(logging.Formatter):
    """One line: time, level, request id, caller, message; keys are cut out last of all."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s %(levelname)-7s [%(request_id)s%(caller)s] %(name)s: %(message)s"
        )

    def format(self, record: logging.LogRecord) -> str:
        who = caller.get()
        record.request_id = request_id.get()
        record.caller = "" if who is None else f" {who[0]} {who[1]}"
        return _KEY.sub(f"{KEY_PREFIX}…", super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        tenant, key_id = caller.get() or (None, None)
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": request_id.get(),
            "tenant": tenant,
            "key_id": key_id,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _KEY.sub(f"{KEY_PREFIX}…", json.dumps(line, ensure_ascii=False))


class Flood(logging.Filter):
    """Lets the first few refusals of a kind through, and counts the rest."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: Counter[int] = Counter()
        self._since = time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status", 0)
        if not 400 <= status < 500:
            return True
        if time.monotonic() - self._since > FLOOD_SECONDS:
            self.sum_up()
        self._seen[status] += 1
        return self._seen[status] <= TOLD_EACH

    def sum_up(self) -> None:
        """Say how many were not told, and begin anew."""
        seen, self._seen = self._seen, Counter()
        since, self._since = self._since, time.monotonic()
        for status, count in sorted(seen.items()):
            if count > TOLD_EACH:
                logging.getLogger(REQUESTS).info(
                    "%d more requests were answered %d in the last %.0f s",
                    count - TOLD_EACH,
                    status,
                    self._since - since,
                )


flood = Flood()


def configure(level: str, how: str = "auto") -> None:
    """Send every logger's lines through one formatter, to standard error."""
    is_for_people = how == "text" or (how == "auto" and sys.stderr.isatty())
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(Formatter() if is_for_people else JsonFormatter())
    stream.addFilter(flood)
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)
    # It announces each of its plugins at every migration.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
