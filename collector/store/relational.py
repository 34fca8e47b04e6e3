"""What the two backends share: every method that is plain SQL, run by the backend's own hands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, inspect, text

from collector.store import ahead, audit, events, gaps, keys, sessions, spells, tenants, workers
from collector.store.protocol import OPERATOR
from collector.store.schema import HEAD
from collector.values import (
    Act,
    Ahead,
    Audited,
    Event,
    Gap,
    Group,
    Key,
    KeyChanges,
    Position,
    RosterQuery,
    Session,
    Silent,
    Spell,
    Tenant,
    Worker,
)

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Connection, P], T]


class RelationalStore(ABC):
    """A backend says how a piece of work runs in a transaction; the rest stands here once."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[frozenset[str]], None]] = []

    @abstractmethod
    async def _read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work in a transaction that sees one moment."""

    @abstractmethod
    async def _write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run work in a transaction and commit it."""

    def on_change(self, tell: Callable[[frozenset[str]], None]) -> None:
        self._listeners.append(tell)

    def _wake(self, tenants: frozenset[str]) -> None:
        for tell in self._listeners:
            tell(tenants)

    async def revision(self) -> str | None:
        """The schema's, or None in a store that nobody migrated."""
        return await self._read(_revision)

    async def behind(self) -> str | None:
        revision = await self.revision()
        if revision is None:
            return "the store is empty"
        # Revisions are numbered. A newer schema is fine: migrations expand before they contract.
        if revision < HEAD:
            return f"the store is at revision {revision}, this version needs {HEAD}"
        return None

    async def roster(self, tenant_id: str, query: RosterQuery, *, now: int) -> list[Worker]:
        return await self._read(workers.roster, tenant_id, query, now)

    async def has_more_workers(self, tenant_id: str, *, than: int) -> bool:
        return await self._read(workers.has_more, tenant_id, than)

    async def worker(self, tenant_id: str, agent_id: str) -> Worker | None:
        return await self._read(workers.worker, tenant_id, agent_id)

    async def summary(self, tenant_id: str, *, now: int) -> list[Group]:
        return await self._read(workers.summary, tenant_id, now)

    async def snapshot(
        self, tenant_id: str, query: RosterQuery, *, now: int
    ) -> tuple[list[Worker], Position]:
        return await self._read(_snapshot, tenant_id, query, now)

    async def position(self, tenant_id: str) -> Position:
        return await self._read(events.position, tenant_id)

    async def news(self, heads: Mapping[str, int], *, limit: int) -> dict[str, list[Event]]:
        return await self._read(events.news, heads, limit) if heads else {}

    async def events(self, tenant_id: str, *, after: int, limit: int) -> list[Event]:
        return await self._read(events.read, tenant_id, after, limit)

    async def worker_events(
        self, tenant_id: str, agent_id: str, *, since: int, limit: int
    ) -> list[Event]:
        return await self._read(events.of_worker, tenant_id, agent_id, since, limit)

    async def prune_events(self, *, before: int, keep: int, limit: int) -> int:
        return await self._write(events.prune, before, keep, limit)

    async def prune_spells(self, *, before: int, limit: int) -> int:
        return await self._write(spells.prune, before, limit)

    async def prune_gaps(self, *, before: int) -> int:
        return await self._write(gaps.prune, before)

    async def spells(self, tenant_id: str, agent_id: str, *, since: int) -> list[Spell]:
        return await self._read(spells.read, tenant_id, agent_id, since)

    async def silent(self, *, before: int, limit: int) -> list[Silent]:
        return await self._read(workers.silent, before, limit)

    async def listen(self, collector_id: str, *, now: int) -> Gap | None:
        return await self._write(gaps.listen, collector_id, now)

    async def ahead(self, *, now: int) -> Ahead:
        return await self._read(ahead.read, now)

    async def mend(self, *, now: int, limit: int) -> int:
        return await self._write(ahead.mend, now, limit)

    async def presence(self, tenant_id: str, *, since: int, step: int, steps: int) -> list[int]:
        return await self._read(spells.presence, tenant_id, since, step, steps)

    async def gaps(self, *, since: int) -> list[Gap]:
        return await self._read(gaps.read, since)

    async def add_key(self, key: Key, *, by: str = OPERATOR, most: int = 0) -> bool:
        return await self._write(keys.add, key, by, most)

    async def replace_key(
        self, key_id: str, successor: Key, *, expires_at: int, by: str = OPERATOR, most: int = 0
    ) -> bool:
        return await self._write(keys.replace, key_id, successor, expires_at, by, most)

    async def active_keys(self, tenant_id: str, *, now: int) -> int:
        return await self._read(keys.active, tenant_id, now)

    async def use_keys(self, key_ids: Collection[str], *, now: int) -> None:
        await self._write(keys.use, key_ids, now)

    async def find_key(self, key_id: str) -> Key | None:
        return (await self.find_keys([key_id])).get(key_id)

    async def find_keys(self, key_ids: Collection[str]) -> dict[str, Key]:
        return await self._read(keys.find, key_ids)

    async def keys(self, tenant_id: str | None) -> list[Key]:
        return await self._read(keys.every, tenant_id)

    async def revoke_key(
        self, tenant_id: str, key_id: str, *, now: int, by: str = OPERATOR
    ) -> bool:
        return await self._write(keys.revoke, tenant_id, key_id, now, by)

    async def key_changes(self, *, since: int) -> KeyChanges:
        return await self._read(keys.changes, since)

    async def add_session(self, session: Session, *, most: int) -> bool:
        return await self._write(sessions.add, session, most)

    async def find_session(self, digest: str, *, now: int) -> tuple[Session, Key] | None:
        return await self._read(sessions.find, digest, now)

    async def sessions_of(self, key_id: str, *, now: int) -> list[Session]:
        return await self._read(sessions.of_key, key_id, now)

    async def end_session(self, key_id: str, session_id: str) -> bool:
        return await self._write(sessions.end, key_id, session_id)

    async def sessions_gone(self, session_ids: Collection[str]) -> frozenset[str]:
        return await self._read(sessions.gone, session_ids) if session_ids else frozenset()

    async def prune_sessions(self, *, before: int, limit: int) -> int:
        return await self._write(sessions.prune, before, limit)

    async def audit(self, tenant_id: str, *, before: int | None, limit: int) -> list[Audited]:
        return await self._read(audit.read, tenant_id, before, limit)

    async def prune_audit(self, *, before: int, limit: int) -> int:
        return await self._write(audit.prune, before, limit)

    async def tenants(self, *, now: int) -> list[Tenant]:
        return await self._read(tenants.every, now)

    async def holdings(self, tenant_id: str) -> dict[str, int]:
        return await self._read(tenants.holdings, tenant_id)

    async def lock_out(self, tenant_id: str, *, now: int) -> int:
        return await self._write(tenants.lock_out, tenant_id, now)

    async def remove_tenant(self, tenant_id: str, *, now: int) -> dict[str, int]:
        act = Act("tenant.removed", tenant_id)
        return await self._write(tenants.remove, tenant_id, now, act)

    async def live_workers(self, *, now: int) -> dict[str, int]:
        return await self._read(workers.live, now)


def _snapshot(
    conn: Connection, tenant_id: str, query: RosterQuery, now: int
) -> tuple[list[Worker], Position]:
    # In one transaction that sees one moment: what is not in the roster is after the cursor.
    return workers.roster(conn, tenant_id, query, now), events.position(conn, tenant_id)


def _revision(conn: Connection) -> str | None:
    if not inspect(conn).has_table("alembic_version"):
        return None
    return conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
