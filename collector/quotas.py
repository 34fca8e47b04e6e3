"""How much one tenant may have and do. A limit of 0 is none, and costs nothing.

Beats are counted by each process for itself. Who is alive is counted in the store every 10 s, and
each process adds whom it let in since. So one process keeps the limit exactly, several may pass it
by whom the others let in between two counts, and a beat of a worker that is known here asks nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from collector.clock import Clock, every
from collector.errors import CollectorError, QuotaExceeded
from collector.settings import Settings
from collector.store.protocol import Store
from collector.values import SECOND, TTL, Beat
from collector.workers import liveness

COUNT_EVERY_SECONDS = 10.0
Answer = Callable[[CollectorError | None], None]


@dataclass(slots=True)
class Crew:
    """What this process knows of one tenant's live workers."""

    # By the store, when it was last asked.
    counted: int = 0
    # Let in since then, and whether they are committed: never more than the limit.
    new: dict[str, bool] = field(default_factory=dict)
    # Those of them all who beat here, and when last: they are let pass unasked.
    known: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.counted + len(self.new)

    def leave(self, agent_id: str) -> None:
        """There is room for another at once, if this process knew it."""
        if self.known.pop(agent_id, None) is None:
            return
        if self.new.pop(agent_id, None) is None:
            self.counted = max(0, self.counted - 1)

    def take_back(self, agent_id: str) -> None:
        """Its beat was not committed: nobody came."""
        if self.new.get(agent_id) is False:
            del self.new[agent_id]
            self.known.pop(agent_id, None)

    def settle(self, agent_id: str) -> None:
        if agent_id in self.new:
            self.new[agent_id] = True


class Quotas:
    """The limits of the settings, for every tenant alike."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._most_workers = settings.max_workers
        self.most_keys = settings.max_keys
        self._most_beats = settings.max_beats_per_second
        self.are_on = bool(self._most_workers or self._most_beats)
        self._crews: dict[str, Crew] = {}
        # Tenant → the second it last beat in, and how often.
        self._beats: dict[str, tuple[int, int]] = {}

    async def follow(self) -> None:
        await every(COUNT_EVERY_SECONDS, self.count, "live workers were not counted")

    async def count(self) -> None:
        """How many live workers each tenant has; before the first beat too."""
        now = self._clock.now()
        self._beats = {
            tenant: beats for tenant, beats in self._beats.items() if beats[0] == now // SECOND
        }
        if self._most_workers:
            await self._count_workers(now)

    async def _count_workers(self, now: int) -> None:
        # Who is committed by now will be counted. Who is not may be, and goes on being added: for
        # one turn too many rather than too few.
        settled = {
            tenant: [*filter(crew.new.get, crew.new)] for tenant, crew in self._crews.items()
        }
        live = await self._store.live_workers(now=now)
        for tenant in live.keys() | self._crews.keys():
            crew = self._crews.setdefault(tenant, Crew())
            crew.counted = live.get(tenant, 0)
            for agent_id in settled.get(tenant, ()):
                crew.new.pop(agent_id, None)
            crew.known = {name: seen for name, seen in crew.known.items() if seen >= now - TTL}
            if not (crew.size or crew.known):
                del self._crews[tenant]

    def knows(self, beat: Beat) -> bool:
        """Whether nobody has to be asked if this beat's worker is alive already."""
        return (
            not self._most_workers
            or beat.status == "offline"
            or beat.agent_id in self._crew(beat).known
        )

    async def is_live(self, beat: Beat) -> bool:
        """Ask the store whether this beat's worker is alive, unless the beat is refused anyway."""
        self._check_rate(beat)
        worker = await self._store.worker(beat.tenant_id, beat.agent_id)
        return worker is not None and liveness(worker, beat.last_seen).reason == "alive"

    def admit(self, beat: Beat, answer: Answer, *, is_live: bool) -> Answer:
        """Count this beat, or say what it is one too many of; what is refused is not counted.

        The answer that is returned settles or takes back what was counted, and then answers.
        """
        second, count = self._check_rate(beat)
        if self._most_workers:
            answer = self._admit_worker(beat, answer, is_live)
        if self._most_beats:
            self._beats[beat.tenant_id] = (second, count + 1)
        return answer

    def _check_rate(self, beat: Beat) -> tuple[int, int]:
        """The second that the beat falls in, and how many its tenant sent in it."""
        second = beat.last_seen // SECOND
        last, count = self._beats.get(beat.tenant_id, (second, 0))
        count = count if last == second else 0
        if self._most_beats and count >= self._most_beats:
            raise QuotaExceeded(f"This tenant may send {self._most_beats} heartbeats a second.")
        return second, count

    def _admit_worker(self, beat: Beat, answer: Answer, is_live: bool) -> Answer:
        agent_id, crew = beat.agent_id, self._crew(beat)
        is_settled = agent_id in crew.known and crew.new.get(agent_id) is not False
        if is_settled and beat.status != "offline":
            # Whatever becomes of this beat, its worker is counted already.
            crew.known[agent_id] = beat.last_seen
            return answer
        # A leave is never one too many.
        if beat.status != "offline":
            if not (is_live or agent_id in crew.known):
                if crew.size >= self._most_workers:
                    raise QuotaExceeded(
                        f"This tenant has {self._most_workers} live workers, as many as it may.",
                        retry_after_seconds=int(COUNT_EVERY_SECONDS),
                    )
                crew.new[agent_id] = False
            crew.known[agent_id] = beat.last_seen

        def settle(error: CollectorError | None) -> None:
            self._settle(beat, is_committed=error is None)
            answer(error)

        return settle

    def _settle(self, beat: Beat, *, is_committed: bool) -> None:
        crew = self._crew(beat)
        if beat.status != "offline":
            (crew.settle if is_committed else crew.take_back)(beat.agent_id)
        elif is_committed:
            crew.leave(beat.agent_id)

    def _crew(self, beat: Beat) -> Crew:
        crew = self._crews.get(beat.tenant_id)
        if crew is None:
            crew = self._crews[beat.tenant_id] = Crew()
        return crew

    async def admit_key(self, tenant_id: str, now: int) -> None:
        """Let one more key be made, as far as can be told before: the store counts once more."""
        if self.most_keys and await self._store.active_keys(tenant_id, now=now) >= self.most_keys:
            raise QuotaExceeded.of_keys(self.most_keys)
