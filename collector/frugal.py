"""How a collector asks the system for memory: so that it gives back what it no longer needs."""

from __future__ import annotations

import ctypes
from typing import Final

# glibc's names for them, and what it would choose by itself: eight heaps for each core, and a
# threshold that grows up to 32 MB. Pieces of large rosters would then stay in heaps for ever.
ARENA_MAX: Final = -8
MMAP_THRESHOLD: Final = -3
LARGE_BYTES: Final = 128 * 1024


def be_frugal() -> None:
    """Large pieces of memory come from the system itself and go back to it; one heap has the rest.

    Another C library than glibc is left as it is.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(ARENA_MAX, 1)
    mallopt(MMAP_THRESHOLD, LARGE_BYTES)
