"""Every store does what the model does, one call at a time and several at once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from collector.settings import Settings
from collector.store.open import store_for
from collector.store.protocol import Store
from collector.values import NO_GAP, SECOND, Beat, Gap, Key, Session, Silent
from conformance.store import concurrent, machine
from conformance.store.model import Model
from tests.conftest import BACKENDS
from tests.databases import TEMPLATE, Databases
from tests.strict import skip

BOUNDED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    stateful_step_count=24,
    report_multiple_bugs=False,
    # Each says that a real database is slow.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
EXAMPLES = settings(BOUNDED, max_examples=12)
FEW_EXAMPLES = settings(BOUNDED, max_examples=4)
RACES = settings(BOUNDED, max_examples=100)
# That a defect is found is all that is asked, not its least example. A model costs next to nothing:
# it gets as many examples as make a miss unheard of, and stops at the first that shows it.
UNSHRUNK = [Phase.generate]
FOUND_OUT = settings(BOUNDED, max_examples=300, phases=UNSHRUNK)

Open = Callable[[str], Store]


@pytest.fixture
def unopened(tmp_path: Path, migrated_file: Path, databases: Databases) -> Open:
    """Doors to one fresh, migrated store a backend."""
    urls: dict[str, str] = {}

    def made(backend: str) -> str:
        if backend == "cloud-missing":
            skip("no PostgreSQL to put beside SQLite")
        if backend == "selfhosted":
            return f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'collector.db')}"
        return asyncio.run(databases.made(backend, TEMPLATE))

    def door(backend: str) -> Store:
        if backend not in urls:
            urls[backend] = made(backend)
        return store_for(Settings(store_url=urls[backend]))

    return door


# An older PostgreSQL runs the same statements: it is tried for less long.
@pytest.mark.parametrize(
    ("backends", "bounds"),
    [(BACKENDS[:2], EXAMPLES), *(([older], FEW_EXAMPLES) for older in BACKENDS[2:])],
    ids=["side-by-side", *BACKENDS[2:]],
)
def test_every_store_does_what_the_model_does(
    unopened: Open, backends: list[str], bounds: settings
) -> None:
    machine.prove({name: unopened(name) for name in backends}, settings=bounds)


def test_calls_at_once_end_as_some_order_of_them_would(unopened: Open, backend: str) -> None:
    concurrent.prove([unopened(backend) for _ in range(4)], settings=RACES)


# What the proofs are worth: stores that are the model but for one defect.


class DropsEqualStamps(Model):
    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        newer = [beat for beat in beats if not self._has(beat)]
        return await super().commit(newer, now=now, gone=gone)

    def _has(self, beat: Beat) -> bool:
        row = self.rows.get((beat.tenant_id, beat.agent_id))
        return row is not None and row.worker.last_seen == beat.last_seen


class MovesLastSeenBack(Model):
    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        return await super().commit(beats, now=now - 3600 * SECOND, gone=gone)


class TakesCasesForOne(Model):
    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        one_case = {(b.tenant_id, b.agent_id.lower()): b for b in beats}
        lowered = [b._replace(agent_id=agent_id) for (_, agent_id), b in one_case.items()]
        return await super().commit(lowered, now=now, gone=gone)


class CountsEverySilence(Model):
    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        return await super().commit(beats, now=now, gone=max(gone, NO_GAP))


class StoresHalfABatch(Model):
    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        grew: frozenset[str] = frozenset()
        for beat in beats:
            grew |= await super().commit([beat], now=now, gone=gone)
        return grew


class AnnouncesThoseWhoBeat(Model):
    async def announce_lost(self, silent: Sequence[Silent], *, before: int) -> frozenset[str]:
        return await super().announce_lost(silent, before=before + 3600 * SECOND)


class RemovesFromEveryTenant(Model):
    async def remove(
        self, tenant_id: str, agent_ids: Sequence[str], *, now: int, **more: Any
    ) -> int:
        for other, same in list(self.rows):
            if same in agent_ids and other != tenant_id:
                self._remove((other, same), now)
        return await super().remove(tenant_id, agent_ids, now=now, **more)


class CutsHolesIntoLogs(Model):
    async def prune_events(self, *, before: int, keep: int, limit: int) -> int:
        old = [
            (log, line)
            for log in self.logs.values()
            for line in log.lines
            if line.at < before or not keep
        ][:limit]
        for log, line in old:
            log.lines.remove(line)
        return len(old)


class RevokesTwice(Model):
    async def revoke_key(
        self, tenant_id: str, key_id: str, *, now: int, by: str = "operator"
    ) -> bool:
        if key := self.known_keys.get(key_id):
            self.known_keys[key_id] = replace(key, revoked_at=None)
        return await super().revoke_key(tenant_id, key_id, now=now, by=by)


class RevokesByIdAlone(Model):
    async def revoke_key(
        self, tenant_id: str, key_id: str, *, now: int, by: str = "operator"
    ) -> bool:
        key = self.known_keys.get(key_id)
        owner = tenant_id if key is None else key.tenant_id
        return await super().revoke_key(owner, key_id, now=now, by=by)


class FindsSessionsOfEndedKeys(Model):
    async def find_session(self, digest: str, *, now: int) -> tuple[Session, Key] | None:
        found = [s for s in self.signed_in if s.digest == digest and s.expires_at > now]
        return (found[0], self.known_keys[found[0].key_id]) if found else None


class KeepsOneSessionTooMany(Model):
    async def add_session(self, session: Session, *, most: int) -> bool:
        return await super().add_session(session, most=most + 1)


class EndsAnotherKeysSession(Model):
    async def end_session(self, key_id: str, session_id: str) -> bool:
        owner = [s.key_id for s in self.signed_in if s.id == session_id]
        return await super().end_session(owner[0] if owner else key_id, session_id)


class FindsAGapAt15Seconds(Model):
    async def listen(self, collector_id: str, *, now: int) -> Gap | None:
        gap = await super().listen(collector_id, now=now + 1)
        return gap and gap._replace(ended_at=now)


class LosesUpdates(Model):
    """Reads, waits, and writes what it made of what it read."""

    async def commit(self, beats: Sequence[Beat], *, now: int, gone: int) -> frozenset[str]:
        own = deepcopy(self)
        await asyncio.sleep(0)
        grew = await Model.commit(own, beats, now=now, gone=gone)
        vars(self).update(vars(own))
        return grew


class ChecksBeforeItRemoves(Model):
    async def remove(
        self, tenant_id: str, agent_ids: Sequence[str], *, now: int, **more: Any
    ) -> int:
        found = sum((tenant_id, agent_id) in self.rows for agent_id in agent_ids)
        await asyncio.sleep(0)
        await super().remove(tenant_id, agent_ids, now=now, **more)
        return found


class AnnouncesWhatItFound(Model):
    async def announce_lost(self, silent: Sequence[Silent], *, before: int) -> frozenset[str]:
        quiet = {s[:2] for s in await self.silent(before=before, limit=len(self.rows))}
        found = [each for each in silent if each[:2] in quiet]
        await asyncio.sleep(0)
        return await super().announce_lost(found, before=NO_GAP)


@pytest.mark.parametrize(
    "defect",
    [
        DropsEqualStamps,
        MovesLastSeenBack,
        TakesCasesForOne,
        CountsEverySilence,
        StoresHalfABatch,
        AnnouncesThoseWhoBeat,
        RemovesFromEveryTenant,
        CutsHolesIntoLogs,
        RevokesTwice,
        RevokesByIdAlone,
        FindsSessionsOfEndedKeys,
        KeepsOneSessionTooMany,
        EndsAnotherKeysSession,
        FindsAGapAt15Seconds,
    ],
)
def test_a_store_that_does_otherwise_is_found_out(defect: type[Model]) -> None:
    with pytest.raises(AssertionError, match="the model said"):
        machine.prove({"defect": defect()}, settings=FOUND_OUT)


@pytest.mark.parametrize("defect", [LosesUpdates, ChecksBeforeItRemoves, AnnouncesWhatItFound])
def test_a_store_whose_calls_get_in_each_others_way_is_found_out(defect: type[Model]) -> None:
    with pytest.raises(AssertionError, match="no order"):
        concurrent.prove([defect()], settings=FOUND_OUT)


def test_a_store_that_keeps_every_promise_passes_both() -> None:
    machine.prove({"another": Model()}, settings=FEW_EXAMPLES)
    concurrent.prove([Model()], settings=RACES)
