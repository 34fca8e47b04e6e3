"""The words and numbers of the contract, each defined here and nowhere else.

Standard library only: agents import this inside other people's processes.
"""

from __future__ import annotations

from typing import Final, Literal

CONTRACT_VERSION: Final = "1.0"

Status = Literal["idle", "busy", "offline"]
STATUSES: Final[tuple[Status, ...]] = ("idle", "busy", "offline")

Reason = Literal["alive", "left", "lost"]
REASONS: Final[tuple[Reason, ...]] = ("alive", "left", "lost")

BEAT_SECONDS: Final = 15
TTL_SECONDS: Final = 45

# A stored stamp this far ahead of now is a fault of some clock, and the next beat overwrites it.
STAMP_AHEAD_SECONDS: Final = 5

# A beat that differs from its row in one of these is a change and is logged.
COMPARED_FIELDS: Final = (
    "status",
    "active_sessions",
    "agent_name",
    "project",
    "region",
    "version",
    "host",
    "dispatch_name",
    "started_at",
)
# Two processes that share an id alternate in these: while a conflict lasts they are not compared.
PROCESS_FIELDS: Final = ("version", "host", "started_at")
# Stored and served, never a change.
VITAL_FIELDS: Final = ("ts", "memory_rss_bytes", "memory_total_bytes", "cpu_pct")

Scope = Literal["ingest", "read", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("ingest", "read", "admin")

KeyState = Literal["active", "expired", "revoked"]

KEY_PREFIX: Final = "vk_"
KEY_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
KEY_LENGTH: Final = 32
KEY_ID_LENGTH: Final = 8
KEY_PATTERN: Final = rf"{KEY_PREFIX}[A-Z2-7]{{{KEY_LENGTH}}}"

# A browser's session: the cookie's name, its port aside; its token; and what it is called.
SESSION_COOKIE: Final = "presence_session"
SESSION_TOKEN_BYTES: Final = 32
SESSION_TOKEN_PATTERN: Final = r"[A-Za-z0-9_-]{43}"  # noqa: S105 (a shape, no token)
SESSION_ID_LENGTH: Final = 12
SESSION_ID_PATTERN: Final = rf"[A-Z2-7]{{{SESSION_ID_LENGTH}}}"
MAX_BROWSER: Final = 60
# Of one key; the oldest go.
MAX_SESSIONS: Final = 100

# How long a key may be asked to last, and to go on beside its successor.
MAX_KEY_SECONDS: Final = 315_360_000
MAX_OVERLAP_SECONDS: Final = 2_592_000
OVERLAP_SECONDS: Final = 3_600
# From this age on a key should be rotated.
OLD_KEY_DAYS: Final = 90
AUDIT_PAGE: Final = 100
MAX_AUDIT_PAGE: Final = 1_000

TENANT_PATTERN: Final = r"[a-z0-9-]{1,63}"
DEFAULT_TENANT: Final = "default"

MAX_TEXT: Final = 256
TEXT_PATTERN: Final = r"^[^\u0000-\u001f\u007f-\u009f]*$"
MAX_INTEGER: Final = 2**63 - 1
MAX_CPU_PCT: Final = 1_000_000
CPU_PCT_DECIMALS: Final = 3
# The last second of the year 9999: later than any clock that is merely wrong.
MAX_TIME_SECONDS: Final = 253_402_300_799
MAX_HEAD_BYTES: Final = 32768
MAX_HEADERS: Final = 100
MAX_BODY_BYTES: Final = 16 * 1024
MAX_PAGE: Final = 10_000

# What the log tells of a worker; the feed puts `worker.` before it.
Told = Literal[
    "worker.online",
    "worker.changed",
    "worker.conflict",
    "worker.left",
    "worker.offline",
    "worker.removed",
]
ToldReason = Literal["lost", "collector_gap"]
SpellEnd = Literal["left", "lost", "removed"]

# Of presence over time: how many steps, and how long each may be.
MAX_PRESENCE_STEPS: Final = 288
MAX_STEP_SECONDS: Final = 3_600

# Of the long poll: how long it waits, and how many lines it goes back.
MAX_WAIT_SECONDS: Final = 30
MAX_LAST: Final = 1_000
