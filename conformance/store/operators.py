"""The model's keys and audit, and what operators do to whole tenants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from collector.values import Act, Audited, Key, KeyChanges

OPERATOR = "operator"
SECOND = 1_000_000


class Operators:
    """Part of a store in plain Python."""

    def __init__(self) -> None:
        self.known_keys: dict[str, Key] = {}
        # The ids of changed keys in the order of the changes: the revision is how many there were.
        self.changed_keys: list[str] = []
        self.acts: dict[str, list[Audited]] = {}
        self._act_id = 0

    async def add_key(self, key: Key, *, by: str = OPERATOR) -> bool:
        if key.id in self.known_keys:
            return False
        self._set_key(key)
        self._audit(key.tenant_id, key.created_at, Act("key.created", key.id, by, _facts(key)))
        return True

    async def replace_key(
        self, key_id: str, successor: Key, *, expires_at: int, by: str = OPERATOR
    ) -> bool:
        if successor.id in self.known_keys:
            return False
        self._set_key(successor)
        key = self.known_keys[key_id]
        if key.expires_at is None or key.expires_at > expires_at:
            self._set_key(replace(key, expires_at=expires_at))
        detail = {**_facts(successor), "successor": successor.id, "expires_at": expires_at / SECOND}
        act = Act("key.rotated", key_id, by, detail)
        self._audit(successor.tenant_id, successor.created_at, act)
        return True

    async def use_keys(self, key_ids: Collection[str], *, now: int) -> None:
        for key_id in key_ids:
            key = self.known_keys.get(key_id)
            if key is not None and (key.last_used_at is None or key.last_used_at < now):
                self.known_keys[key_id] = replace(key, last_used_at=now)

    async def find_key(self, key_id: str) -> Key | None:
        return self.known_keys.get(key_id)

    async def keys(self, tenant_id: str | None) -> list[Key]:
        asked = [k for k in self.known_keys.values() if tenant_id in (None, k.tenant_id)]
        return sorted(asked, key=lambda key: (key.created_at, key.id))

    async def revoke_key(self, key_id: str, *, now: int, by: str = OPERATOR) -> bool:
        key = self.known_keys.get(key_id)
        if key is not None and key.revoked_at is None:
            self._set_key(replace(key, revoked_at=now))
            self._audit(key.tenant_id, now, Act("key.revoked", key_id, by))
        return key is not None

    async def key_changes(self, *, since: int) -> KeyChanges:
        changed = frozenset(self.changed_keys[since:])
        revoked = frozenset(k for k in changed if self.known_keys[k].revoked_at is not None)
        return KeyChanges(len(self.changed_keys), changed, revoked)

    async def audit(self, tenant_id: str, *, before: int | None, limit: int) -> list[Audited]:
        newest_first = reversed(self.acts.get(tenant_id, []))
        return [act for act in newest_first if before is None or act.id < before][:limit]

    async def lock_out(self, tenant_id: str, *, now: int) -> int:
        open_ones = [k for k in await self.keys(tenant_id) if k.revoked_at is None]
        for key in open_ones:
            self._set_key(replace(key, revoked_at=now))
        return len(open_ones)

    def _set_key(self, key: Key) -> None:
        self.known_keys[key.id] = key
        self.changed_keys.append(key.id)

    def _audit(self, tenant_id: str, at: int, act: Act, **detail: object) -> None:
        self._act_id += 1
        told: Mapping[str, object] = {**act.detail, **detail}
        self.acts.setdefault(tenant_id, []).append(
            Audited(self._act_id, at, act.actor, act.action, act.subject, dict(told))
        )


def _facts(key: Key) -> dict[str, object]:
    ends = None if key.expires_at is None else key.expires_at / SECOND
    return {"scopes": list(key.scopes), "name": key.name, "expires_at": ends}
