"""Exit codes: 0 done, 1 failed, 2 usage, 3 collector or store unreachable, 4 refused.

And 5 of a collector that was told to stop and was ended, because something in it hung.
"""

from __future__ import annotations

from collector.errors import CollectorError

FAILED, USAGE, UNREACHABLE, REFUSED, CUT_OFF = 1, 2, 3, 4, 5

_CODES = {
    "invalid_field": USAGE,
    "store_unavailable": UNREACHABLE,
    "collector_unreachable": UNREACHABLE,
    "store_behind": REFUSED,
    "store_taken": REFUSED,
    "unauthenticated": REFUSED,
    "not_active": REFUSED,
    "quota_exceeded": REFUSED,
    "too_many_reads": REFUSED,
    "too_many_subscribers": REFUSED,
    "missing_scope": REFUSED,
    "not_a_backup": REFUSED,
    "file_exists": REFUSED,
}


def exit_code(error: CollectorError) -> int:
    return _CODES.get(error.code, FAILED)
