"""The host's log, and no harm from it: its handlers are the host's, and may fail."""

from __future__ import annotations

import logging
from contextlib import suppress

logger = logging.getLogger("contract.producer")


def warn(text: str, *values: object) -> None:
    with suppress(Exception):
        logger.warning(text, *values)


def trace(text: str, *values: object) -> None:
    """With the exception that is handled just now."""
    with suppress(Exception):
        logger.exception(text, *values)
