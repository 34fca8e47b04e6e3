"""The model's keys, sessions and audit, and what operators do to whole tenants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from collector.errors import NotActive, QuotaExceeded, Unauthenticated
from collector.values import Act, Audited, Key, KeyChanges, Session

OPERATOR = "operator"
SECOND = 1_000_000


class Operators:
    """Part of a store in plain Python."""

    def __init__(self) -> None:
        self.known_keys: dict[str, Key] = {}
        # Ids of keys that went with their tenants.
        self.buried_keys: set[str] = set()
        # The ids of changed keys in the order of the changes: the revision is how many there were.
        self.changed_keys: list[str] = []
        self.signed_in: list[Session] = []
        self.acts: dict[str, list[Audited]] = {}
        self._act_id = 0

    async def add_key(self, key: Key, *, by: str = OPERATOR, most: int = 0) -> bool:
        self._check_actor(by, key.created_at)
        if self._is_taken(key.id):
            return False
        await self._check_quota(key, most)
        self._set_key(key)
        self._audit(key.tenant_id, key.created_at, Act("key.created", key.id, by, _facts(key)))
        return True

    async def replace_key(
        self, key_id: str, successor: Key, *, expires_at: int, by: str = OPERATOR, most: int = 0
    ) -> bool:
        now = successor.created_at
        self._check_actor(by, now)
        if self._is_taken(successor.id):
            return False
        key = self.known_keys.get(key_id)
        if key is None or key.tenant_id != successor.tenant_id or not _is_replaceable(key, now):
            raise NotActive("revoked, expired, rotated already or not there")
        ends_at = expires_at if key.expires_at is None else min(key.expires_at, expires_at)
        await self._check_quota(successor, most, besides=key_id if ends_at <= now else None)
        self._set_key(successor)
        self._set_key(replace(key, expires_at=ends_at, successor_id=successor.id))
        detail = {**_facts(successor), "successor": successor.id, "expires_at": expires_at / SECOND}
        act = Act("key.rotated", key_id, by, detail)
        self._audit(successor.tenant_id, successor.created_at, act)
        return True

    async def active_keys(self, tenant_id: str, *, now: int) -> int:
        return sum(key.is_active(now) for key in await self.keys(tenant_id))

    async def use_keys(self, key_ids: Collection[str], *, now: int) -> None:
        for key_id in key_ids:
            key = self.known_keys.get(key_id)
            if key is not None and (key.last_used_at is None or key.last_used_at < now):
                self.known_keys[key_id] = replace(key, last_used_at=now)

    async def find_key(self, key_id: str) -> Key | None:
        return self.known_keys.get(key_id)

    async def find_keys(self, key_ids: Collection[str]) -> dict[str, Key]:
        return {each: self.known_keys[each] for each in key_ids if each in self.known_keys}

    async def keys(self, tenant_id: str | None) -> list[Key]:
        asked = [k for k in self.known_keys.values() if tenant_id in (None, k.tenant_id)]
        return sorted(asked, key=lambda key: (key.created_at, key.id))

    async def revoke_key(
        self, tenant_id: str, key_id: str, *, now: int, by: str = OPERATOR
    ) -> bool:
        key = self.known_keys.get(key_id)
        if key is None or key.tenant_id != tenant_id:
            return False
        if key.revoked_at is None:
            self._set_key(replace(key, revoked_at=now))
            self._audit(tenant_id, now, Act("key.revoked", key_id, by))
        return True

    async def key_changes(self, *, since: int) -> KeyChanges:
        changed = frozenset(self.changed_keys[since:])
        live = {k.id for k in self.known_keys.values() if k.revoked_at is None}
        own = [self.known_keys[key_id] for key_id in changed & live]
        ends = {k.id: k.expires_at for k in own if k.successor_id and k.expires_at is not None}
        return KeyChanges(len(self.changed_keys), changed, changed - live, ends)

    async def add_session(self, session: Session, *, most: int) -> bool:
        key = self.known_keys.get(session.key_id)
        is_its = key is not None and key.tenant_id == session.tenant_id
        if key is None or not (is_its and key.is_active(session.created_at)):
            raise Unauthenticated("revoked, expired or not there")
        if any(session.id == s.id or session.digest == s.digest for s in self.signed_in):
            return False
        others = [s for s in self.signed_in if s.key_id == session.key_id]
        for spare in sorted(others, key=_newest_first)[most - 1 :]:
            self.signed_in.remove(spare)
        self.signed_in.append(session)
        return True

    async def find_session(self, digest: str, *, now: int) -> tuple[Session, Key] | None:
        for session in self.signed_in:
            key = self.known_keys[session.key_id]
            if session.digest == digest and session.expires_at > now and key.is_active(now):
                return session, key
        return None

    async def sessions_of(self, key_id: str, *, now: int) -> list[Session]:
        own = [s for s in self.signed_in if s.key_id == key_id and s.expires_at > now]
        return sorted(own, key=_newest_first)

    async def end_session(self, key_id: str, session_id: str) -> bool:
        own = [s for s in self.signed_in if (s.key_id, s.id) == (key_id, session_id)]
        self.signed_in = [s for s in self.signed_in if s not in own]
        return bool(own)

    async def sessions_gone(self, session_ids: Collection[str]) -> frozenset[str]:
        return frozenset(session_ids) - {s.id for s in self.signed_in}

    async def prune_sessions(self, *, before: int, limit: int) -> int:
        old = [s for s in self.signed_in if s.expires_at < before][:limit]
        self.signed_in = [s for s in self.signed_in if s not in old]
        return len(old)

    async def audit(self, tenant_id: str, *, before: int | None, limit: int) -> list[Audited]:
        newest_first = reversed(self.acts.get(tenant_id, []))
        return [act for act in newest_first if before is None or act.id < before][:limit]

    async def prune_audit(self, *, before: int, limit: int) -> int:
        by_id = sorted((act.id, tenant) for tenant, acts in self.acts.items() for act in acts)
        cut = {act_id for act_id, _ in by_id[:limit] if act_id < self._act_id}
        pruned = 0
        for tenant, acts in self.acts.items():
            kept = [act for act in acts if act.id not in cut or act.at >= before]
            pruned += len(acts) - len(kept)
            self.acts[tenant] = kept
        return pruned

    async def lock_out(self, tenant_id: str, *, now: int) -> int:
        open_ones = [k for k in await self.keys(tenant_id) if k.revoked_at is None]
        for key in sorted(open_ones, key=lambda key: key.id):
            await self.revoke_key(tenant_id, key.id, now=now)
        return len(open_ones)

    async def _bury_keys(self, tenant_id: str) -> None:
        for key in await self.keys(tenant_id):
            self.signed_in = [s for s in self.signed_in if s.key_id != key.id]
            del self.known_keys[key.id]
            self.buried_keys.add(key.id)
            self.changed_keys.append(key.id)

    def _is_taken(self, key_id: str) -> bool:
        return key_id in self.known_keys or key_id in self.buried_keys

    def _check_actor(self, by: str, now: int) -> None:
        if by != OPERATOR and not (by in self.known_keys and self.known_keys[by].is_active(now)):
            raise Unauthenticated("revoked, expired or not there")

    async def _check_quota(self, key: Key, most: int, besides: str | None = None) -> None:
        now = key.created_at
        held = [k.id for k in await self.keys(key.tenant_id) if k.is_active(now)]
        if most and len(set(held) - {besides}) >= most:
            raise QuotaExceeded.of_keys(most)

    def _set_key(self, key: Key) -> None:
        self.known_keys[key.id] = key
        self.changed_keys.append(key.id)

    def _audit(self, tenant_id: str, at: int, act: Act, **detail: object) -> None:
        self._act_id += 1
        told: Mapping[str, object] = {**act.detail, **detail}
        self.acts.setdefault(tenant_id, []).append(
            Audited(self._act_id, at, act.actor, act.action, act.subject, dict(told))
        )


def _newest_first(session: Session) -> tuple[int, str]:
    return -session.created_at, session.id


def _is_replaceable(key: Key, now: int) -> bool:
    return key.is_active(now) and key.successor_id is None


def _facts(key: Key) -> dict[str, object]:
    ends = None if key.expires_at is None else key.expires_at / SECOND
    return {"scopes": list(key.scopes), "name": key.name, "expires_at": ends}
