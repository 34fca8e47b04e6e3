"""When the next beat is due."""

from __future__ import annotations

import random

from contract.vocabulary import BEAT_SECONDS

# Neither seeded by the host nor the same in a fork's child.
_random = random.SystemRandom()

BACKOFF_SECONDS = 15.0
# What a server may ask for at most; more is a mistake of something in between.
MAX_ASKED_SECONDS = 300.0
# A change of status does not wait for the interval, but beats keep this distance.
NUDGE_SECONDS = 1.0


def until_next(interval: float | None, asked: float | None) -> float:
    """Seconds after an accepted beat: never later than asked, and not in step with others."""
    seconds = asked if asked is not None else float(BEAT_SECONDS)
    if interval is not None:
        seconds = min(seconds, interval)
    return _within(seconds) * _random.uniform(0.9, 1.0)


def until_retry(failures: int, asked: float | None) -> float:
    """Seconds after the n-th failure in a row: at most 1, 2, 4, 8, 15, or what the server asks."""
    if asked is not None:
        return _within(asked) * _random.uniform(1.0, 1.1)
    return min(BACKOFF_SECONDS, 2.0 ** min(failures - 1, 8)) * _random.uniform(0.5, 1.0)


def _within(seconds: float) -> float:
    return min(max(seconds, NUDGE_SECONDS), MAX_ASKED_SECONDS)
