"""Log lines: each with its request id, none with a key in it."""

from __future__ import annotations

import logging
import re
import sys
from contextvars import ContextVar

from contract.vocabulary import KEY_PREFIX

request_id: ContextVar[str] = ContextVar("request_id", default="-")

# Anything that begins like a key, so that a mistyped one is hidden too.
_KEY = re.compile(rf"{KEY_PREFIX}[A-Za-z0-9]+")


class Formatter(logging.Formatter):
    """One line: time, level, request id, message; keys are cut out last of all."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s [%(request_id)s] %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.request_id = request_id.get()
        return _KEY.sub(f"{KEY_PREFIX}…", super().format(record))


def configure(level: str) -> None:
    """Send every logger's lines through the one formatter, to standard error."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(Formatter())
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)
    # It announces each of its plugins at every migration.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
