"""How much one tenant may have and do. A limit of 0 is none.

Beats are counted by each process for itself; who is alive is counted in the store every 10 s, so
that a beat costs a tenant within its limits nothing.
"""

from __future__ import annotations

from collector.clock import Clock, every
from collector.errors import QuotaExceeded
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import SECOND
from collector.workers import liveness

COUNT_EVERY_SECONDS = 10.0


class Quotas:
    """The limits of the settings, for every tenant alike."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._most_workers = settings.max_workers
        self.most_keys = settings.max_keys
        self._most_beats = settings.max_beats_per_second
        self.are_on = bool(self._most_workers or self._most_beats)
        self._full: frozenset[str] = frozenset()
        # Tenant → the second it last beat in, and how often.
        self._beats: dict[str, tuple[int, int]] = {}

    async def follow(self) -> None:
        await every(COUNT_EVERY_SECONDS, self.count, "live workers were not counted")

    async def count(self) -> None:
        """Who has as many live workers as a tenant may."""
        now = self._clock.now()
        self._beats = {
            tenant: beats for tenant, beats in self._beats.items() if beats[0] == now // SECOND
        }
        if self._most_workers:
            live = await self._store.live_workers(now=now)
            self._full = frozenset(t for t, count in live.items() if count >= self._most_workers)

    async def admit(self, tenant_id: str, agent_id: str, now: int) -> None:
        """Let this beat pass, or say what it is one too many of."""
        if self._most_beats:
            self._admit_beat(tenant_id, now // SECOND)
        if tenant_id in self._full and not await self._is_live(tenant_id, agent_id, now):
            raise QuotaExceeded(
                f"This tenant has {self._most_workers} live workers, as many as it may.",
                retry_after_seconds=int(COUNT_EVERY_SECONDS),
            )

    def _admit_beat(self, tenant_id: str, second: int) -> None:
        last, count = self._beats.get(tenant_id, (second, 0))
        count = count if last == second else 0
        if count >= self._most_beats:
            raise QuotaExceeded(f"This tenant may send {self._most_beats} heartbeats a second.")
        self._beats[tenant_id] = (second, count + 1)

    async def _is_live(self, tenant_id: str, agent_id: str, now: int) -> bool:
        worker = await self._store.worker(tenant_id, agent_id)
        return worker is not None and liveness(worker, now).reason == "alive"

    async def admit_key(self, tenant_id: str, now: int) -> None:
        """Let one more key be made, as far as can be told before: the store counts once more."""
        if self.most_keys and await self._store.active_keys(tenant_id, now=now) >= self.most_keys:
            raise QuotaExceeded.of_keys(self.most_keys)
