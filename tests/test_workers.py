"""The pure rules, as pure functions."""

from __future__ import annotations

import pytest

from collector.values import NO_GAP, Gap, Liveness
from collector.workers import gone_before, liveness, microseconds, project, seconds
from tests.factories import at, worker


@pytest.mark.parametrize(
    ("age", "seen"),
    [
        (0, Liveness("busy", "alive")),
        (44.9, Liveness("busy", "alive")),
        (45, Liveness("busy", "alive")),
        (45.000001, Liveness("offline", "lost")),
        (-3, Liveness("busy", "alive")),
    ],
)
def test_a_worker_is_alive_for_exactly_45_s(age: float, seen: Liveness) -> None:
    assert liveness(worker(status="busy"), at(age)) == seen


def test_a_worker_that_left_stays_left_past_the_ttl() -> None:
    assert liveness(worker(status="offline"), at(1)) == Liveness("offline", "left")
    assert liveness(worker(status="offline"), at(1000)) == Liveness("offline", "left")


def test_an_offline_worker_has_no_sessions() -> None:
    shown = project(worker(status="busy", active_sessions=7), at(46))

    assert (shown["status"], shown["active_sessions"], shown["reason"]) == ("offline", 0, "lost")


@pytest.mark.parametrize(
    ("rss", "total", "pct"),
    [
        (88_252_416, 25_274_793_984, 0.3),
        (300, 100, 300.0),
        (0, 5, None),
        (5, 0, None),
        (None, 5, None),
    ],
)
def test_memory_pct_is_what_the_peer_makes_of_it(
    rss: int | None, total: int | None, pct: float | None
) -> None:
    shown = project(worker(memory_rss_bytes=rss, memory_total_bytes=total), at(0))

    assert shown["memory_pct"] == pct


def test_cpu_pct_has_three_decimals_and_no_minus_zero() -> None:
    assert project(worker(cpu_pct=12.34567), at(0))["cpu_pct"] == 12.346
    assert str(project(worker(cpu_pct=-0.0), at(0))["cpu_pct"]) == "0.0"


@pytest.mark.parametrize(("age", "conflict"), [(45, True), (45.000001, False)])
def test_a_conflict_is_shown_for_45_s(age: float, conflict: bool) -> None:
    assert project(worker(conflict_seen=at(0)), at(age))["conflict"] is conflict


@pytest.mark.parametrize("value", [0.0, 1783200000.0, 1783200015.123456, 253402300799.0])
def test_a_time_of_the_wire_survives_the_store(value: float) -> None:
    assert seconds(microseconds(value)) == value


def test_with_no_recent_gap_every_silence_counts() -> None:
    assert gone_before([], at(0)) == NO_GAP
    assert gone_before([Gap(at(-600), at(-45.000001))], at(0)) == NO_GAP


@pytest.mark.parametrize("since_gap", [0, 19.999999])
def test_within_20_s_of_a_gap_no_silence_counts(since_gap: float) -> None:
    assert gone_before([Gap(at(-600), at(0))], at(since_gap)) == 0


def test_after_a_gap_a_silence_counts_once_listened_to_for_45_s_in_all() -> None:
    gap = Gap(at(-600), at(0))

    # 20 s since the gap and so 25 s before it.
    assert gone_before([gap], at(20)) == at(-625)
    assert gone_before([gap], at(44)) == at(-601)
    # Listened to for exactly 45 s is not more than 45 s.
    assert gone_before([gap], at(45)) == at(-600)
    assert gone_before([gap], at(45.000001)) == NO_GAP


def test_a_crash_loop_adds_up_only_what_was_listened_to() -> None:
    gaps = [Gap(at(-100), at(-80)), Gap(at(-70), at(-50)), Gap(at(-40), at(-20))]

    # 20 s since the last gap, 10 s before it, 10 s before that, 5 s before the first.
    assert gone_before(gaps, at(0)) == at(-105)


def test_a_gap_inside_another_is_counted_once() -> None:
    assert gone_before([Gap(at(-100), at(-20)), Gap(at(-60), at(-50))], at(0)) == at(-125)
