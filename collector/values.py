"""Frozen values that pass between the doors, the verbs and the stores.

Times are epoch microseconds; tuples, because that is what the stores' drivers take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from contract.vocabulary import TTL_SECONDS, Reason, Scope, Status

SECOND = 1_000_000
TTL = TTL_SECONDS * SECOND
# No collector listening for longer than this is a gap: three of their beats, one every 5 s.
GAP = 15 * SECOND
# The gap cutoff when no gap is recent: every silence counts.
NO_GAP = 2**63 - 1
# Later than any stamp.
NEVER = 2**63 - 1


class Beat(NamedTuple):
    """One stamped heartbeat, its fields in the order of the store's columns."""

    tenant_id: str
    agent_id: str
    agent_name: str
    status: Status
    active_sessions: int
    project: str | None
    region: str | None
    version: str | None
    host: str | None
    dispatch_name: str | None
    started_at: int | None
    ts: int | None
    memory_rss_bytes: int | None
    memory_total_bytes: int | None
    cpu_pct: float | None
    last_seen: int


class Worker(NamedTuple):
    """A worker's row: its newest beat and what the store keeps about it."""

    agent_id: str
    agent_name: str
    status: Status
    active_sessions: int
    project: str | None
    region: str | None
    version: str | None
    host: str | None
    dispatch_name: str | None
    started_at: int | None
    ts: int | None
    memory_rss_bytes: int | None
    memory_total_bytes: int | None
    cpu_pct: float | None
    last_seen: int
    first_seen: int
    conflict_seen: int | None
    # What the log said last: online, left or lost.
    reported: str


class Liveness(NamedTuple):
    """What a reader may be told of a worker at one moment."""

    status: Status
    reason: Reason


@dataclass(frozen=True, slots=True)
class Walk:
    """Where a paged reading stands: after this worker, begun at `as_of`."""

    as_of: int
    first_seen: int
    agent_id: str


@dataclass(frozen=True, slots=True)
class RosterQuery:
    """Which workers to read; `limit` decides the order (see `Store.roster`)."""

    statuses: tuple[Status, ...] = ()
    agent_name: str | None = None
    project: str | None = None
    region: str | None = None
    seen_since: int | None = None
    seen_before: int | None = None
    limit: int | None = None
    after: Walk | None = None


class Event(NamedTuple):
    """One line of a tenant's log; `worker` is the row as it was committed."""

    n: int
    type: str
    at: int
    reason: str | None
    agent_id: str
    worker: dict[str, object]


class Position(NamedTuple):
    """Where a tenant's log stands: which log, the oldest line it still has, the newest."""

    epoch: str
    floor: int
    head: int


class Group(NamedTuple):
    """How many of a tenant's workers have this name and read as this status."""

    agent_name: str
    status: Status
    workers: int
    sessions: int


class Spell(NamedTuple):
    """One stretch of being online; `online_until` is None while it lasts."""

    online_from: int
    online_until: int | None
    reason: str | None


class Gap(NamedTuple):
    """A time in which no collector of this store listened."""

    began_at: int
    ended_at: int


class Ahead(NamedTuple):
    """How many workers, gaps and collectors have a stamp that is ahead of now, and how far."""

    workers: int
    gaps: int
    collectors: int
    furthest: int

    @property
    def is_a_fault(self) -> bool:
        return bool(self.workers or self.gaps or self.collectors)

    def __str__(self) -> str:
        return (
            f"{self.workers} workers, {self.gaps} gaps and {self.collectors} collectors are stamped"
            f" up to {self.furthest / SECOND:.1f} s ahead"
        )


class Silent(NamedTuple):
    """A worker that may have gone quiet, to be confirmed by the sweep."""

    tenant_id: str
    agent_id: str
    last_seen: int


@dataclass(frozen=True, slots=True)
class Key:
    """A key's row; `digest` is what argon2 made of the plaintext, which nobody keeps."""

    id: str
    tenant_id: str
    name: str | None
    digest: str
    scopes: tuple[Scope, ...]
    created_at: int
    revoked_at: int | None
    expires_at: int | None = None
    last_used_at: int | None = None
    successor_id: str | None = None

    def is_active(self, now: int) -> bool:
        """Whether it opens anything at that moment."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that signed in with a key; `digest` is the sha256 of a token that only it has."""

    digest: str
    id: str
    tenant_id: str
    key_id: str
    browser: str
    created_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody does, for the audit: a key's id, or the operator at the store itself."""

    action: str
    subject: str
    actor: str = "operator"
    detail: Mapping[str, object] = field(default_factory=dict)


class Audited(NamedTuple):
    """One act that was done."""

    id: int
    at: int
    actor: str
    action: str
    subject: str
    detail: dict[str, object]


class Tenant(NamedTuple):
    """A tenant as the operator sees it."""

    tenant_id: str
    workers: int
    last_seen: int | None
    active_keys: int


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """The key revision, and which keys changed since the one asked about.

    Some are now revoked, others rotated: they have got an end, or keep the one that they had.
    """

    revision: int
    changed: frozenset[str]
    revoked: frozenset[str]
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling: all that a key says about its bearer, or about a browser's session of it."""

    tenant_id: str
    scopes: frozenset[Scope]
    key_id: str
    expires_at: int | None = None
    session_id: str | None = None

    @property
    def owner(self) -> tuple[str, str]:
        """The tenant and the key's id: what the log says of a caller."""
        return self.tenant_id, self.key_id

    def has_ended(self, now: int) -> bool:
        """Whether the time of its key or its session is up."""
        return self.expires_at is not None and self.expires_at <= now
