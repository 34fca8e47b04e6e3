"""A store in plain Python, written from the contract and the protocol: others must match it.

It shares no constant with the code it judges, and no statement: a rule is a branch here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from collector.errors import Unstorable
from collector.values import (
    Act,
    Ahead,
    Beat,
    Event,
    Gap,
    Group,
    Position,
    RosterQuery,
    Silent,
    Spell,
    Tenant,
    Worker,
)
from conformance.store.beats import TTL, Row, is_online, kind, leaves, made, renewed
from conformance.store.operators import Operators

AHEAD = 5_000_000
BETWEEN_BEATS = 15_000_000
LISTENED = 15_000_000
MOST = 2**63 - 1
Place = tuple[str, str]


@dataclass
class Log:
    lines: list[Event] = field(default_factory=list)
    head: int = 0


class Model(Operators):
    """Keeps every promise of `Store`; each method ends without waiting, and so is atomic."""

    # No other process can open it.
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[Place, Row] = {}
        self.logs: dict[str, Log] = {}
        self.ended: dict[Place, list[Spell]] = {}
        self.listened: dict[str, int] = {}
        self.known_gaps: list[Gap] = []

    # Opening

    async def open(self, *, serving: bool = False) -> None:
        """Nothing is held, served or not."""

    async def close(self) -> None:
        """Nothing is held."""

    def abandon(self) -> None:
        """Nothing runs."""

    async def behind(self) -> str | None:
        return None

    async def migrate(self) -> None:
        """There is no schema."""

    async def time(self) -> int | None:
        return None

    # Beats

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        if any(not 0 <= beat.active_sessions <= MOST for beat in beats):
            raise Unstorable("sessions are a whole number of 63 bits")
        heads = self._heads()
        for beat in sorted(beats, key=lambda beat: (beat.tenant_id, beat.agent_id)):
            self._take(beat, now, gone)
        return self._grown(heads)

    def _take(self, beat: Beat, now: int, gone: int) -> None:
        place = (beat.tenant_id, beat.agent_id)
        row = self.rows.get(place)
        if row is None:
            self.rows[place] = made(beat)
            self._tell(place, "left" if leaves(beat) else "online", beat.last_seen)
        elif not beat.last_seen < row.worker.last_seen <= now + AHEAD:
            self._renew(place, row, beat, gone)

    def _renew(self, place: Place, row: Row, beat: Beat, gone: int) -> None:
        silent = is_online(row) and beat.last_seen - row.worker.last_seen > TTL
        if silent and row.worker.last_seen < gone:
            self._lose(place, row)
        own = kind(row, beat)
        if own == "left" and is_online(row):
            self._end(place, row, beat.last_seen, "left")
        if own == "online":
            row.online_from = beat.last_seen
        unheard = silent and is_online(row) and not leaves(beat)
        row.worker, row.started_at = renewed(row, beat), beat.started_at
        if unheard:
            self._tell(place, "changed", beat.last_seen, "collector_gap")
        elif own:
            self._tell(place, own, beat.last_seen)

    # Roster

    async def roster(self, tenant_id: str, query: RosterQuery, *, now: int) -> list[Worker]:
        found = [worker for worker in self._of(tenant_id) if _matches(worker, query, now)]
        if query.limit is None:
            return sorted(found, key=lambda worker: (-worker.last_seen, worker.agent_id))
        walked = sorted(found, key=_step, reverse=True)
        if query.after is not None:
            after = (query.after.first_seen, query.after.agent_id)
            walked = [worker for worker in walked if _step(worker) < after]
        return walked[: query.limit]

    async def has_more_workers(self, tenant_id: str, *, than: int) -> bool:
        return len(list(self._of(tenant_id))) > than

    async def worker(self, tenant_id: str, agent_id: str) -> Worker | None:
        row = self.rows.get((tenant_id, agent_id))
        return None if row is None else row.worker

    async def summary(self, tenant_id: str, *, now: int) -> list[Group]:
        groups: dict[tuple[str, str], Group] = {}
        for worker in self._of(tenant_id):
            status = "offline" if _is_offline(worker, now) else worker.status
            sessions = 0 if status == "offline" else worker.active_sessions
            group = groups.get((worker.agent_name, status)) or Group(
                worker.agent_name, status, 0, 0
            )
            groups[worker.agent_name, status] = group._replace(
                workers=group.workers + 1, sessions=group.sessions + sessions
            )
        return sorted(groups.values())

    async def remove(
        self,
        tenant_id: str,
        agent_ids: Sequence[str],
        *,
        now: int,
        before: int = MOST,
        act: Act | None = None,
    ) -> int:
        places = [(tenant_id, agent_id) for agent_id in sorted(set(agent_ids))]
        old = [p for p in places if p in self.rows and self.rows[p].worker.last_seen < before]
        for place in old:
            self._remove(place, now)
        if old and act is not None:
            self._audit(tenant_id, now, act, workers=len(old))
        return len(old)

    async def forget(self, *, before: int, limit: int, now: int) -> frozenset[str]:
        heads = self._heads()
        old = [place for place, row in self.rows.items() if row.worker.last_seen < before]
        for place in sorted(old)[:limit]:
            self._remove(place, now)
        return self._grown(heads)

    def _remove(self, place: Place, now: int) -> None:
        row = self.rows[place]
        lost_at = row.worker.last_seen + TTL
        self._tell(place, "removed", now)
        if now > lost_at:
            self._end(place, row, lost_at, "lost")
        else:
            self._end(place, row, now, "removed")
        del self.rows[place]

    def _of(self, tenant_id: str) -> Iterator[Worker]:
        return (row.worker for place, row in self.rows.items() if place[0] == tenant_id)

    # Log and spells

    def on_change(self, tell: Callable[[frozenset[str]], None]) -> None:
        """A call may be missed, and here all are."""

    async def snapshot(
        self, tenant_id: str, query: RosterQuery, *, now: int
    ) -> tuple[list[Worker], Position]:
        return await self.roster(tenant_id, query, now=now), await self.position(tenant_id)

    async def position(self, tenant_id: str) -> Position:
        log = self.logs.get(tenant_id, Log())
        return Position("model", log.lines[0].n if log.lines else log.head + 1, log.head)

    async def news(self, heads: Mapping[str, int], *, limit: int) -> dict[str, list[Event]]:
        lines = [
            (line.n - head, tenant_id, line)
            for tenant_id, head in heads.items()
            for line in await self.events(tenant_id, after=head, limit=limit)
        ]
        found: dict[str, list[Event]] = {}
        for _, tenant_id, line in sorted(lines, key=lambda each: each[:2])[:limit]:
            found.setdefault(tenant_id, []).append(line)
        return found

    async def events(self, tenant_id: str, *, after: int, limit: int) -> list[Event]:
        log = self.logs.get(tenant_id, Log())
        return [line for line in log.lines if line.n > after][:limit]

    async def worker_events(
        self, tenant_id: str, agent_id: str, *, since: int, limit: int
    ) -> list[Event]:
        lines = self.logs.get(tenant_id, Log()).lines
        own = [line for line in lines if line.agent_id == agent_id and line.at >= since]
        return own[-limit:]

    async def prune_events(self, *, before: int, keep: int, limit: int) -> int:
        pruned = 0
        for log in self.logs.values():
            spare = log.head - keep
            old = takewhile(lambda line: line.at < before or line.n <= spare, log.lines)  # noqa: B023
            cut = min(len(list(old)), limit - pruned)
            log.lines = log.lines[cut:]
            pruned += cut
        return pruned

    async def prune_spells(self, *, before: int, limit: int) -> int:
        old = [
            (spells, spell)
            for spells in self.ended.values()
            for spell in spells
            if spell.online_until is not None and spell.online_until < before
        ][:limit]
        for spells, spell in old:
            spells.remove(spell)
        return len(old)

    async def spells(self, tenant_id: str, agent_id: str, *, since: int) -> list[Spell]:
        place = (tenant_id, agent_id)
        ended = [s for s in self.ended.get(place, []) if (s.online_until or 0) > since]
        row = self.rows.get(place)
        lasting = [] if row is None or row.online_from is None else [row.online_from]
        ended.sort(key=lambda spell: spell.online_from)
        return ended + [Spell(begun, None, None) for begun in lasting]

    async def presence(self, tenant_id: str, *, since: int, step: int, steps: int) -> list[int]:
        now = since + step * steps
        touched: list[set[Place]] = [set() for _ in range(steps)]
        for place in {*self.ended, *self.rows}:
            for spell in await self.spells(*place, since=since - 1):
                until = spell.online_until
                if until is None:
                    until = min(now, self.rows[place].worker.last_seen + TTL)
                if place[0] != tenant_id or spell.online_from > now or until < since:
                    continue
                for nth in range(steps):
                    begins = since + nth * step
                    is_last = nth == steps - 1
                    if until >= begins and (is_last or spell.online_from < begins + step):
                        touched[nth].add(place)
        return [len(places) for places in touched]

    def _end(self, place: Place, row: Row, until: int, reason: str) -> None:
        if row.online_from is None:
            return
        # What began with one stamp is one spell, of which the last end counts.
        others = [s for s in self.ended.get(place, []) if s.online_from != row.online_from]
        self.ended[place] = [*others, Spell(row.online_from, until, reason)]
        row.online_from = None

    def _tell(self, place: Place, kind: str, at: int, reason: str | None = None) -> None:
        """Log the row as it stands."""
        tenant_id, agent_id = place
        log = self.logs.setdefault(tenant_id, Log())
        log.head += 1
        row = self.rows[place].worker._asdict()
        log.lines.append(Event(log.head, kind, at, reason, agent_id, row))

    def _heads(self) -> dict[str, int]:
        return {tenant_id: log.head for tenant_id, log in self.logs.items()}

    def _grown(self, heads: Mapping[str, int]) -> frozenset[str]:
        return frozenset(t for t, log in self.logs.items() if log.head > heads.get(t, 0))

    # Silence

    async def silent(self, *, before: int, limit: int) -> list[Silent]:
        quiet = (
            Silent(*place, row.worker.last_seen)
            for place, row in self.rows.items()
            if is_online(row) and row.worker.last_seen < before
        )
        return sorted(quiet)[:limit]

    async def announce_lost(self, silent: Sequence[Silent], *, before: int) -> frozenset[str]:
        heads = self._heads()
        for tenant_id, agent_id in sorted({(each.tenant_id, each.agent_id) for each in silent}):
            row = self.rows.get((tenant_id, agent_id))
            if row is not None and is_online(row) and row.worker.last_seen < before:
                self._lose((tenant_id, agent_id), row)
        return self._grown(heads)

    def _lose(self, place: Place, row: Row) -> None:
        lost_at = row.worker.last_seen + TTL
        self._tell(place, "offline", lost_at, "lost")
        self._end(place, row, lost_at, "lost")
        row.worker = row.worker._replace(reported="lost")

    async def listen(self, collector_id: str, *, now: int) -> Gap | None:
        heard = max(self.listened.values(), default=now)
        self.listened[collector_id] = max(now, self.listened.get(collector_id, now))
        if now - heard <= LISTENED:
            return None
        gap = Gap(heard, now)
        self.known_gaps.append(gap)
        return gap

    async def ahead(self, *, now: int) -> Ahead:
        rows = [row for row in self.rows.values() if _is_ahead(row, now)]
        gaps = [gap for gap in self.known_gaps if gap.ended_at > now + AHEAD]
        listened = [at for at in self.listened.values() if at > now + AHEAD]
        stamps = [row.worker.last_seen for row in rows] + [gap.ended_at for gap in gaps] + listened
        return Ahead(len(rows), len(gaps), len(listened), max(0, max(stamps, default=now) - now))

    async def mend(self, *, now: int, limit: int) -> int:
        self.listened = {c: now if at > now + AHEAD else at for c, at in self.listened.items()}
        over = [gap for gap in self.known_gaps if gap.ended_at <= now + AHEAD]
        cut = [Gap(gap.began_at, now) for gap in self.known_gaps if gap not in over]
        self.known_gaps = over + [gap for gap in cut if gap.began_at < now]
        found = [place for place, row in sorted(self.rows.items()) if _is_ahead(row, now)][:limit]
        for place in found:
            _pull_back(self.rows[place], now)
        return len(found)

    async def gaps(self, *, since: int) -> list[Gap]:
        return sorted(gap for gap in self.known_gaps if gap.ended_at > since)

    async def prune_gaps(self, *, before: int) -> int:
        # The newest collector stays: the next gap is measured from it.
        newest = max(self.listened.values(), default=0)
        self.listened = {c: at for c, at in self.listened.items() if at >= min(before, newest)}
        kept = [gap for gap in self.known_gaps if gap.ended_at >= before]
        pruned = len(self.known_gaps) - len(kept)
        self.known_gaps = kept
        return pruned

    # Operators

    async def tenants(self, *, now: int) -> list[Tenant]:
        names = {k.tenant_id for k in self.known_keys.values()} | {p[0] for p in self.rows}
        return [self._tenant(name, now) for name in sorted(names)]

    def _tenant(self, name: str, now: int) -> Tenant:
        stamps = [worker.last_seen for worker in self._of(name)]
        own = [k for k in self.known_keys.values() if k.tenant_id == name]
        active = sum(key.is_active(now) for key in own)
        return Tenant(name, len(stamps), max(stamps, default=None), active)

    async def holdings(self, tenant_id: str) -> dict[str, int]:
        return {
            "workers": sum(1 for _ in self._of(tenant_id)),
            "keys": len(await self.keys(tenant_id)),
            "sessions": sum(s.tenant_id == tenant_id for s in self.signed_in),
            "events": len(self.logs.get(tenant_id, Log()).lines),
            "spells": sum(len(s) for place, s in self.ended.items() if place[0] == tenant_id),
            "audit": len(self.acts.get(tenant_id, [])),
        }

    async def remove_tenant(self, tenant_id: str, *, now: int) -> dict[str, int]:
        held = await self.holdings(tenant_id)
        self.rows = {p: row for p, row in self.rows.items() if p[0] != tenant_id}
        self.ended = {p: spells for p, spells in self.ended.items() if p[0] != tenant_id}
        await self._bury_keys(tenant_id)
        if tenant_id in self.logs:
            self.logs[tenant_id] = Log(head=self.logs[tenant_id].head + 1)
        self.acts.pop(tenant_id, None)
        self._audit(tenant_id, now, Act("tenant.removed", tenant_id), **held)
        return held

    async def live_workers(self, *, now: int) -> dict[str, int]:
        live = [p[0] for p, row in self.rows.items() if not _is_offline(row.worker, now)]
        return {name: live.count(name) for name in set(live)}


def _is_offline(worker: Worker, now: int) -> bool:
    return worker.status == "offline" or now - worker.last_seen > TTL


def _matches(worker: Worker, query: RosterQuery, now: int) -> bool:
    status = "offline" if _is_offline(worker, now) else worker.status
    return (
        (not query.statuses or status in query.statuses)
        and query.agent_name in (None, worker.agent_name)
        and query.project in (None, worker.project)
        and query.region in (None, worker.region)
        and (query.seen_since is None or worker.last_seen >= query.seen_since)
        and (query.seen_before is None or worker.last_seen < query.seen_before)
    )


def _step(worker: Worker) -> tuple[int, str]:
    return worker.first_seen, worker.agent_id


def _is_ahead(row: Row, now: int) -> bool:
    stamps = (row.worker.last_seen, row.online_from, row.worker.conflict_seen)
    return any(stamp is not None and stamp > now + AHEAD for stamp in stamps)


def _pull_back(row: Row, now: int) -> None:
    """Make it look as if its last beat had come one interval ago; a lost worker stays lost."""
    seen, conflict = row.worker.last_seen, row.worker.conflict_seen
    if seen > now + AHEAD:
        seen = now - (TTL + 1 if row.worker.reported == "lost" else BETWEEN_BEATS)
    if conflict is not None:
        conflict = min(conflict, seen)
    if row.online_from is not None:
        row.online_from = min(row.online_from, seen)
    row.worker = row.worker._replace(last_seen=seen, conflict_seen=conflict)
