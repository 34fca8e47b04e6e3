"""Stores and the model side by side: after every step they say the same, of all that they keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from hypothesis import settings as Settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from collector.store.protocol import Store
from collector.values import Key, RosterQuery, Session, Silent, Spell, Walk, Worker
from conformance.store.calls import (
    AGENTS,
    DAY,
    SECOND,
    STEPS,
    Call,
    Example,
    Said,
    Sent,
    call,
    sent,
)
from conformance.store.model import Model
from conformance.store.view import MANY, acts_of, keys_of, last_of_each, view

T = TypeVar("T")
Place = tuple[int, str]

TENANTS = 2
FAR = 2**62
REFUSED = st.sampled_from([()] * 4 + [(("active_sessions", wrong),) for wrong in (-1, 2**63)])
# Late, in time, ahead, and so far ahead that it is a fault.
OFFS = st.sampled_from([0, 0, 0, 0, 0, -1, -15 * SECOND, 5 * SECOND, 5 * SECOND + 1])
# One worker has most of it, so that it lives through much; the others are there to be mistaken.
PLACES = st.sampled_from(
    [(0, "w")] * 20
    + [(0, "W"), (1, "w")] * 2
    + [(tenant, agent_id) for tenant in range(TENANTS) for agent_id in AGENTS]
)
ONE = sent(PLACES, OFFS)
BATCHES = st.lists(ONE, min_size=1, max_size=3, unique_by=lambda each: each.place)
TENANT = st.sampled_from([0, 0, 1])
# Most of what is no beat moves the clock but a little, or all would be silent all the time.
SOON = st.sampled_from([0, 0, 0, 1, 15 * SECOND, 15 * SECOND + 1])
# How long ago a bound lies; a microsecond ahead is past an equal stamp.
AGO = st.sampled_from([-1, 0, 0, 15 * SECOND, 45 * SECOND, 45 * SECOND + 1, 60 * SECOND])
LONG_AGO = st.sampled_from([45 * SECOND, 45 * SECOND + 1, 60 * SECOND])
# From the clock on: every silence counts, only an old one does, none does.
GONE = st.sampled_from([FAR, FAR, -45 * SECOND, -45 * SECOND - 1, -60 * SECOND, -DAY])
COLLECTORS = st.sampled_from(["one", "One"])
PRUNINGS = st.sampled_from(
    [
        call("prune_events", keep=MANY, limit=2),
        call("prune_events", keep=MANY, limit=2),
        call("prune_events", keep=2, limit=2),
        call("prune_spells", limit=2),
        call("prune_gaps"),
    ]
)
KEYS = st.sampled_from(["AAAA", "aaaa", "BBBB"])
# So few that names are taken, and more than one key may have. One draw for all that is done, so
# that sessions take nothing from what else an example lives through.
SESSIONS = ("s", "S", "t")
SESSION_ACTS = st.sampled_from(
    [
        (("sign in", "s"), ("sign in", "S")),
        (("sign in", "S"), ("sign in", "t")),
        (("sign in", "t"), ("sign out", "s")),
        (("sign out", "s"), ("sign out", "S")),
        (("prune", ""),),
    ]
)
# Each a step of the clock, which key, whose, what is done with it, and with a session of it.
KEY_ACTS = st.sampled_from(
    ["make"] * 6 + ["revoke"] * 5 + ["rotate"] * 6 + ["make by it", "lock out", "remove tenant"]
)
KEY_CHANGES = st.lists(
    st.tuples(SOON, KEYS, TENANT, KEY_ACTS, SESSION_ACTS), min_size=1, max_size=6
)
QUERIES = st.builds(
    RosterQuery,
    statuses=st.lists(st.sampled_from(["idle", "busy", "offline"]), max_size=2).map(tuple),
    agent_name=st.sampled_from([None, None, "reception", "Reception"]),
    project=st.sampled_from([None, None, "lobby", "LOBBY"]),
    region=st.sampled_from([None, None, "fra"]),
    limit=st.sampled_from([None, 1, 2, 100]),
)


def prove(stores: Mapping[str, Store], *, settings: Settings) -> None:
    """Raise if one of the stores, which are migrated and not open, parts from the model."""
    with asyncio.Runner() as runner:
        try:
            for store in stores.values():
                runner.run(store.open())
            run_state_machine_as_test(_bound(runner, stores), settings=settings)
        finally:
            for store in stores.values():
                runner.run(store.close())


class StoreMachine(RuleBasedStateMachine):
    """Each step moves the clock, calls all stores alike, and compares them with the model."""

    def __init__(self, runner: asyncio.Runner, stores: Mapping[str, Store]) -> None:
        super().__init__()
        self.runner = runner
        self.model = Model()
        self.stores: dict[str, Store] = {"model": self.model, **stores}
        self.example = Example()
        self.now = self.example.start
        self.tenants = [self.example.tenant(place) for place in range(TENANTS)]
        self.found: list[Silent] = []
        self.revisions: dict[str, int] = {}

    @initialize()
    def begin(self) -> None:
        """Empty the stores of the examples before: what looks after all tenants finds only ours."""
        self._each(lambda store: _clear(store, self.now))
        self._remember_key_revisions()

    # Writing

    @rule(run=st.lists(st.tuples(STEPS, ONE), min_size=2, max_size=8), gone=GONE)
    def beat(self, run: list[tuple[int, Sent]], gone: int) -> None:
        for step, each in run:
            self._commit(step, [each], gone)

    @rule(step=SOON, batch=BATCHES, gone=GONE, refused=REFUSED)
    def beat_together(self, step: int, batch: list[Sent], gone: int, refused: Said) -> None:
        """One beat that can't be stored is enough for none of them to be."""
        *others, last = batch
        self._commit(step, [*others, replace(last, said=last.said + refused)], gone)

    @rule(step=STEPS, place=PLACES)
    def remove(self, step: int, place: Place) -> None:
        self.now += step
        tenant_id, agent_id = self._at(place)
        self._do(call("remove", tenant_id, [agent_id], now=self.now), [(tenant_id, agent_id)])

    @rule(step=SOON, ago=LONG_AGO)
    def forget(self, step: int, ago: int) -> None:
        self.now += step
        known = list(self.model.rows)
        self._do(call("forget", before=self.now - ago, limit=MANY, now=self.now), known)

    @rule(step=SOON, looked=AGO, limit=st.sampled_from([1, MANY, MANY]), announced=AGO)
    def sweep(self, step: int, looked: int, limit: int, announced: int) -> None:
        """Announce whoever was found silent since the example began, however long ago."""
        self.now += step
        before = self.now - looked
        self._read(call("silent", before=before, limit=limit))
        self.found += self.runner.run(self.model.silent(before=before, limit=limit))
        places = {(each.tenant_id, each.agent_id) for each in self.found}
        self._do(call("announce_lost", list(self.found), before=self.now - announced), places)

    @rule(run=st.lists(st.tuples(SOON, COLLECTORS), min_size=1, max_size=2))
    def listen(self, run: list[tuple[int, str]]) -> None:
        for step, collector_id in run:
            self.now += step
            self._read(call("listen", collector_id, now=self.now))
            self._compare_gaps()

    @rule(back=st.sampled_from([0, 5 * SECOND, 5 * SECOND + 1, 60 * SECOND, 7200 * SECOND]))
    def mend(self, back: int) -> None:
        """Mend as a collector does that starts after the clock was set back by so much."""
        known = list(self.model.rows)
        self._read(call("ahead", now=self.now - back))
        self._do(call("mend", now=self.now - back, limit=MANY), known)
        self._read(call("ahead", now=self.now - back))
        self._compare_gaps()

    @rule(pruning=PRUNINGS, ago=AGO)
    def prune(self, pruning: Call, ago: int) -> None:
        dated = replace(pruning, kwargs={**pruning.kwargs, "before": self.now - ago})
        self._agree(lambda store: _drained(store, dated))
        self._compare(self.model.ended)
        self._compare_gaps()

    @rule(run=KEY_CHANGES, from_here=st.booleans())
    def change_keys(
        self, run: list[tuple[int, str, int, str, tuple[tuple[str, str], ...]]], from_here: bool
    ) -> None:
        if from_here:
            self._remember_key_revisions()
        for step, name, tenant, act, session_acts in run:
            self.now += step
            tenant_id, key_id = self.tenants[tenant], f"{name}{self.example.n}"
            self._read(self._key_change(act, tenant_id, key_id))
            for session_act, session in session_acts:
                session_id = f"{session}{self.example.n}"
                self._read(self._session_change(session_act, tenant_id, key_id, session_id))
            self._read(call("find_key", key_id))
            self._read(call("find_keys", [key_id, "NOBODY-S"]))
            self._read(call("active_keys", tenant_id, now=self.now))
            self._agree(partial(acts_of, tenants=[tenant_id]))
            self._agree(partial(keys_of, tenants=[tenant_id]))
            self._agree(partial(_standing, tenant_id=tenant_id, now=self.now))
            self._compare_keys()
            self._compare_sessions()

    def _session_change(self, act: str, tenant_id: str, key_id: str, session_id: str) -> Call:
        """Of a key that may have ended, or be the other tenant's."""
        if act == "prune":
            return call("prune_sessions", before=self.now, limit=MANY)
        if act == "sign out":
            return call("end_session", key_id, session_id)
        digest, until = f"digest of {session_id}", self.now + 30 * SECOND
        session = Session(digest, session_id, tenant_id, key_id, "curl", self.now, until)
        return call("add_session", session, most=1)

    def _compare_sessions(self) -> None:
        """All that there may be, now and when some are over."""
        names = [f"{name}{self.example.n}" for name in SESSIONS]
        self._read(call("sessions_gone", names))
        for now in (self.now, self.now + 15 * SECOND):
            for name in names:
                self._read(call("find_session", f"digest of {name}", now=now))
            for key in ("AAAA", "aaaa", "BBBB"):
                self._read(call("sessions_of", f"{key}{self.example.n}", now=now))

    def _key_change(self, act: str, tenant_id: str, key_id: str) -> Call:
        """What may be taken already, and made by a key that may have ended."""
        key = Key(key_id, tenant_id, "edge", "$", ("read",), self.now, None)
        match act:
            case "make":
                return call("add_key", key, most=2)
            case "make by it":
                return call("add_key", replace(key, id=f"C{key_id}"), by=key_id)
            case "rotate":
                replaced = self.model.known_keys.get(key_id, key)
                name = f"{key_id}-{len(self.model.known_keys)}"
                successor = replace(key, id=name, tenant_id=replaced.tenant_id)
                ends_at = self.now + 15 * SECOND
                return call("replace_key", key_id, successor, expires_at=ends_at, most=4)
            case "lock out":
                return call("lock_out", tenant_id, now=self.now)
            case "remove tenant":
                return call("remove_tenant", tenant_id, now=self.now)
        return call("revoke_key", tenant_id, key_id, now=self.now)

    # Reading

    @rule(tenant=TENANT, query=QUERIES, ago=st.one_of(st.none(), AGO), later=STEPS)
    def walk(self, tenant: int, query: RosterQuery, ago: int | None, later: int) -> None:
        tenant_id, now = self.tenants[tenant], self.now + later
        asked = replace(query, seen_since=None if ago is None else self.now - ago)
        self._agree(lambda store: _walk(store, tenant_id, asked, now))
        self._read(call("summary", tenant_id, now=now))
        for than in range(4):
            self._read(call("has_more_workers", tenant_id, than=than))
        self._read(call("holdings", tenant_id))
        for steps in (1, 7):
            since, step = now - 20 * SECOND * steps, 20 * SECOND
            self._read(call("presence", tenant_id, since=since, step=step, steps=steps))

    @rule(place=PLACES, ago=AGO, after=st.integers(0, 5), limit=st.sampled_from([1, 2, MANY]))
    def look_back(self, place: Place, ago: int, after: int, limit: int) -> None:
        (tenant_id, agent_id), since = self._at(place), self.now - ago
        heads = {tenant_id: after, self.tenants[-1]: 0, "nobody": 0}
        self._read(call("news", heads, limit=limit))
        self._read(call("events", tenant_id, after=after, limit=limit))
        self._read(call("worker", tenant_id, agent_id))
        self._read(call("worker_events", tenant_id, agent_id, since=since, limit=limit))
        self._agree(lambda store: _spells(store, (tenant_id, agent_id), since))
        self._agree(lambda store: _standing(store, tenant_id, self.now))

    def _commit(self, step: int, batch: list[Sent], gone: int) -> None:
        self.now += step
        beats = [each.beat(self.example, self.now) for each in batch]
        places = [(beat.tenant_id, beat.agent_id) for beat in beats]
        self._do(call("commit", beats, now=self.now, gone=self.now + gone), places)

    def _at(self, place: Place) -> tuple[str, str]:
        tenant, agent_id = place
        return self.tenants[tenant], agent_id

    # Comparing

    def teardown(self) -> None:
        """All of it once more, with the workers that no call named."""
        if self.revisions:
            self._compare([(tenant, agent) for tenant in self.tenants for agent in AGENTS])
            self._compare_keys()
            self._compare_sessions()
            self._compare_gaps()

    def _do(self, call: Call, places: Iterable[tuple[str, str]]) -> None:
        self._read(call)
        self._compare(places)

    def _read(self, call: Call) -> None:
        self._agree(call.on)

    def _compare(self, places: Iterable[tuple[str, str]]) -> None:
        """All rosters and logs, and the spells at these places: of the rest, at the end."""
        self._agree(lambda store: view(store, self.tenants, sorted(places)))

    def _compare_gaps(self) -> None:
        self._agree(lambda store: store.gaps(since=self.example.start))

    def _compare_keys(self) -> None:
        self._agree(lambda store: keys_of(store, self.tenants))
        self._compare_key_changes()

    def _remember_key_revisions(self) -> None:
        self.revisions = {
            name: self.runner.run(store.key_changes(since=0)).revision
            for name, store in self.stores.items()
        }

    def _compare_key_changes(self) -> None:
        """Since a moment that each store has its own number for."""
        (_, expected), *answers = [
            (name, self.runner.run(store.key_changes(since=self.revisions[name])))
            for name, store in self.stores.items()
        ]
        for name, answer in answers:
            same = replace(answer, revision=expected.revision)
            assert same == expected, f"{name} said {answer}\nthe model said {expected}"

    def _agree(self, ask: Callable[[Store], Awaitable[object]]) -> None:
        expected, *answers = self._each(ask)
        for name, answer in zip(list(self.stores)[1:], answers, strict=True):
            assert answer == expected, f"{name} said {answer}\nthe model said {expected}"

    def _each(self, ask: Callable[[Store], Awaitable[T]]) -> Sequence[T]:
        async def asked() -> Sequence[T]:
            return await asyncio.gather(*map(ask, self.stores.values()))

        return self.runner.run(asked())


def _bound(runner: asyncio.Runner, stores: Mapping[str, Store]) -> type[StoreMachine]:
    """The machine with nothing left to be told, as it is made anew for each example."""

    class Bound(StoreMachine):
        def __init__(self) -> None:
            super().__init__(runner, stores)

    return Bound


async def _clear(store: Store, now: int) -> None:
    await store.forget(before=FAR, limit=MANY, now=now)
    await store.prune_events(before=FAR, keep=0, limit=MANY)
    await store.prune_spells(before=FAR, limit=MANY)
    await store.prune_sessions(before=FAR, limit=MANY)
    await store.listen("before", now=now)
    await store.prune_gaps(before=now + 1)


async def _walk(store: Store, tenant_id: str, query: RosterQuery, now: int) -> list[list[Worker]]:
    pages = [await store.roster(tenant_id, query, now=now)]
    # A walk that does not end has told enough.
    while len(pages[-1]) == query.limit and len(pages) <= len(AGENTS):
        last = pages[-1][-1]
        query = replace(query, after=Walk(now, last.first_seen, last.agent_id))
        pages.append(await store.roster(tenant_id, query, now=now))
    return pages


async def _standing(store: Store, tenant_id: str, now: int) -> tuple[object, ...]:
    """Without the epoch, which is each store's own."""
    workers, position = await store.snapshot(tenant_id, RosterQuery(), now=now)
    assert await store.position(tenant_id) == position
    return workers, position.floor, position.head


async def _spells(store: Store, place: tuple[str, str], since: int) -> list[Spell]:
    return last_of_each(await store.spells(*place, since=since))


async def _drained(store: Store, pruning: Call) -> int:
    """How much goes in all: which of it goes first is the store's own affair."""
    pruned = 0
    while gone := await pruning.on(store):
        assert isinstance(gone, int)
        assert gone <= pruning.kwargs.get("limit", MANY)
        pruned += gone
    return pruned
