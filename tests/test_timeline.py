"""A worker's history and uptime, as pure functions."""

from __future__ import annotations

import pytest

from collector.timeline import Uptime, as_read, uptime
from collector.values import SECOND, Gap, Spell
from tests.factories import at


def spell(begins: float, ends: float | None, reason: str | None = None) -> Spell:
    return Spell(at(begins), None if ends is None else at(ends), reason)


def gap(begins: float, ends: float) -> Gap:
    return Gap(at(begins), at(ends))


def in_100_s(spells: list[Spell], gaps: list[Gap]) -> tuple[float, float, float]:
    """Online, counted and gap seconds of the hundred that end now."""
    found = uptime(spells, gaps, since=at(0), now=at(100))
    return found.online / SECOND, found.counted / SECOND, found.gap / SECOND


def test_an_open_spell_of_a_worker_that_is_alive_lasts() -> None:
    lasting = [spell(0, None)]

    assert as_read(lasting, last_seen=at(10), now=at(55)) == lasting


def test_silence_past_the_ttl_ends_an_open_spell_for_a_reader() -> None:
    assert as_read([spell(0, None)], last_seen=at(10), now=at(55.000001)) == [spell(0, 55, "lost")]


def test_a_spell_that_ended_is_read_as_it_is() -> None:
    ended = [spell(0, 10, "left"), spell(20, 80, "lost")]

    assert as_read(ended, last_seen=at(35), now=at(500)) == ended


def test_what_a_beat_began_between_two_reads_never_ends_before_it_began() -> None:
    recorded = [spell(0, 45, "lost"), spell(60, None), spell(71, None)]

    assert as_read(recorded, last_seen=at(0), now=at(70)) == recorded[:2]


@pytest.mark.parametrize(
    ("spells", "online"),
    [
        ([], 0),
        ([spell(0, 100)], 100),
        ([spell(20, 50)], 30),
        ([spell(20, None)], 80),
        ([spell(-50, 10), spell(90, 150)], 20),
        ([spell(-50, -10), spell(110, 150)], 0),
        ([spell(10, 50), spell(30, 60)], 50),
        ([spell(10, 50), spell(20, 30)], 40),
        ([spell(30, 60), spell(10, 30)], 50),
        ([spell(40, 40)], 0),
        ([spell(-1, None), spell(20, 30)], 100),
    ],
)
def test_only_what_the_spells_cover_of_the_window_is_online(
    spells: list[Spell], online: float
) -> None:
    assert in_100_s(spells, []) == (online, 100, 0)


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        pytest.param([gap(30, 40)], (40, 90, 10), id="inside the spell"),
        pytest.param([gap(80, 90)], (50, 90, 10), id="outside the spell"),
        pytest.param([gap(60, 90)], (40, 70, 30), id="over the spell's end"),
        pytest.param([gap(0, 100)], (0, 0, 100), id="over everything"),
        pytest.param([gap(-50, 10), gap(95, 200)], (50, 85, 15), id="past both ends"),
        pytest.param([gap(30, 50), gap(40, 60)], (20, 70, 30), id="overlapping"),
        pytest.param([gap(-90, -10)], (50, 100, 0), id="before the window"),
    ],
)
def test_a_gap_counts_neither_as_online_nor_as_offline(
    gaps: list[Gap], expected: tuple[float, float, float]
) -> None:
    assert in_100_s([spell(20, 70)], gaps) == expected


def test_a_lost_workers_spell_counts_up_to_its_ttl() -> None:
    spells = as_read([spell(0, None)], last_seen=at(15), now=at(100))

    assert in_100_s(spells, []) == (60, 100, 0)


def test_a_window_that_a_worker_has_not_begun_counts_nothing() -> None:
    nothing = uptime([spell(5, None)], [gap(-10, 10)], since=at(5), now=at(3))

    assert nothing == Uptime(0, 0, 0)


@pytest.mark.parametrize(
    ("found", "ratio"),
    [(Uptime(50, 100, 0), 0.5), (Uptime(100, 100, 7), 1.0), (Uptime(0, 0, 100), None)],
)
def test_the_ratio_is_of_what_counts_and_none_if_nothing_does(
    found: Uptime, ratio: float | None
) -> None:
    assert found.ratio == ratio
