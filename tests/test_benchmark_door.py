"""The parts of the proof that the door holds: what it sees, and what its controls lack."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import make_url

from benchmarks import memory, undefended, usage
from benchmarks.attacks import ATTACKS, hangs
from benchmarks.attacks.hangs import Seen
from benchmarks.besieged import Answer, Besieged, Scale
from benchmarks.door import Outcome, prove
from benchmarks.fleet import strangers
from benchmarks.paced import DRAIN_SECONDS, Schedule
from benchmarks.places import Places
from benchmarks.readers import Crowd, reading
from benchmarks.stage import Stage
from benchmarks.stretch import stretch
from benchmarks.undefended import WITHOUT
from collector.api import connection
from conformance.postgres import Server
from tests.fleet import Fleet

pytestmark = pytest.mark.anyio

SMALL = Scale(headers_bytes=200_000, url_bytes=200_000, flood_seconds=1, slack_seconds=0.5)
REFUSED = Answer(sent_at=1, seconds=10, status=503, code="store_unavailable")
ACCEPTED = Answer(sent_at=1, seconds=1, status=202)
CHANGED: dict[str, set[str]] = {
    "bound on pipelining": {"MAX_PIPELINED"},
    "bound on heads": {"MAX_HEAD_BYTES", "MAX_HEADERS"},
}
OUTCOME = Outcome("heads", "selfhosted", None, None, 2, {}, [], 0, 1.0, 2.0, 3.0)


@pytest.fixture
def backend() -> str:
    """None of this is about a store."""
    return "selfhosted"


@pytest.fixture
def sqlite_only(tmp_path: Path) -> Places:
    return Places(tmp_path, cast(Server, None))


@pytest.fixture
def judged() -> Besieged:
    """Where faults are noted, without a collector."""
    return Besieged(cast(Stage, None), strangers(), Scale(), None)


def test_what_is_wrong_with_a_collector_as_it_is_fails_the_proof() -> None:
    assert OUTCOME.faults == []
    assert replace(OUTCOME, details=["memory: 400 MB"]).faults == ["memory: 400 MB"]


def test_a_control_has_to_be_wrong_in_what_its_defence_is_for() -> None:
    control = replace(OUTCOME, without="bound on heads", shows="memory", details=["beats: late"])

    assert replace(control, wrong={"memory": 1}).faults == []
    assert len(replace(control, wrong={"beats": 1}).faults) == 1


def test_every_attack_has_a_control_and_every_control_is_of_one() -> None:
    used = {control.without for attack in ATTACKS.values() for control in attack.controls}

    assert used == set(WITHOUT)
    assert all(attack.controls for attack in ATTACKS.values())


@pytest.mark.parametrize("defence", WITHOUT)
def test_what_a_control_does_without_is_there_by_that_name(defence: undefended.Defence) -> None:
    before = vars(connection).copy()

    with WITHOUT[defence]():
        changed = {name for name, value in before.items() if vars(connection)[name] is not value}

    assert changed == CHANGED.get(defence, set())
    assert vars(connection) == before


async def test_heads_are_refused_and_without_their_bound_they_are_not(
    sqlite_only: Places,
) -> None:
    (control,) = ATTACKS["heads"].controls

    defended = await prove(sqlite_only, "selfhosted", "heads", None, SMALL)
    without = await prove(sqlite_only, "selfhosted", "heads", control, SMALL)

    assert not {"answers", "ends"} & defended.wrong.keys()
    assert (without.wrong["answers"], without.wrong["ends"]) == (2, 2)
    assert defended.peak_bytes > 0


def test_a_beat_is_late_after_twelve_seconds(judged: Besieged) -> None:
    late = replace(REFUSED, seconds=12.1)

    hangs.judge_beats(judged, Seen(0, 40, beats=[REFUSED, late, replace(late, status=0)]))

    assert judged.wrong == {"beats": 2}


def test_a_beat_is_refused_in_the_words_of_the_contract(judged: Besieged) -> None:
    other = replace(REFUSED, code="internal")

    hangs.judge_beats(judged, Seen(0, 40, beats=[REFUSED, other]))

    assert judged.wrong == {"answers": 1}


def test_a_store_that_hangs_accepts_nothing_before_its_end(judged: Besieged) -> None:
    after = replace(ACCEPTED, sent_at=39.5)

    hangs.judge_beats(judged, Seen(0, 40, beats=[REFUSED, ACCEPTED, after]))

    assert judged.wrong == {"answers": 1}


@pytest.mark.parametrize(
    ("unready_from", "ready_again", "wrong"), [(6, False, {}), (9, False, 1), (6, True, 1)]
)
def test_readiness_tells_of_a_hang_soon_and_until_its_end(
    judged: Besieged, unready_from: int, ready_again: bool, wrong: object
) -> None:
    looks = [Answer(at, 0.1, 200 if at < unready_from else 503) for at in range(20)]
    if ready_again:
        looks[15] = replace(looks[15], status=200)

    hangs.judge_readiness(judged, Seen(0, 20, looks=looks))

    assert judged.wrong.get("ready", {}) == wrong


@pytest.mark.parametrize(("back_at", "wrong"), [(40.9, 0), (41.1, 1), (None, 1)])
def test_service_is_back_soon_after_a_hang(
    judged: Besieged, back_at: float | None, wrong: int
) -> None:
    hangs.judge_return(judged, Seen(0, 40, back_at), within=1)

    assert judged.wrong["back"] == wrong


async def test_a_stretch_delivers_afterwards_what_it_held() -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while some := await reader.read(100):
            arrived.put_nowait(some)
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    async with server, stretch(*server.sockets[0].getsockname()) as between:
        _, writer = await asyncio.open_connection("127.0.0.1", between.port)
        writer.write(b"first")
        assert await arrived.get() == b"first"

        async with between.impassable():
            writer.write(b"second")
            _, other = await asyncio.open_connection("127.0.0.1", between.port)
            other.write(b"third")
            await asyncio.sleep(0.1)
            held = arrived.empty()
        found = {await arrived.get(), await arrived.get()}
        writer.close()
        other.close()

    assert held
    assert found == {b"second", b"third"}


async def test_readers_ask_again_at_once_whatever_they_are_answered(
    fleet: Fleet, tmp_path: Path
) -> None:
    url = make_url(fleet.url)
    address = (str(url.host), int(url.port or 0))

    async with reading(address, tmp_path / "readers", Crowd("/v1/agents", 2)) as readers:
        while (await readers.look()).statuses.get("401", 0) < 10:
            await asyncio.sleep(0.05)

    assert readers.answers.statuses.keys() == {"401"}


async def test_a_stream_that_was_kept_long_enough_is_opened_anew(
    fleet: Fleet, tmp_path: Path
) -> None:
    url = make_url(fleet.url)
    address = (str(url.host), int(url.port or 0))
    crowd = Crowd("/events", 1, key=await fleet.key(), keep_seconds=0.05)

    async with reading(address, tmp_path / "readers", crowd) as readers:
        while (await readers.look()).statuses.get("200", 0) < 3:
            await asyncio.sleep(0.05)

    assert readers.answers.statuses.keys() == {"200"}


async def test_a_beat_that_is_not_answered_counts_as_a_long_one() -> None:
    schedule = Schedule([b""], rate=10, seconds=1)
    schedule.start()
    schedule.late.append(0)
    schedule.took.append(0.001)

    found = schedule.found()

    assert (found.unanswered, found.p99) == (9, DRAIN_SECONDS)


async def test_the_peak_is_at_least_what_there_is() -> None:
    async with memory.watched(os.getpid()) as peak:
        resident = usage.resident_bytes(os.getpid())

    assert peak.bytes >= resident > 0
