"""What the pages say of speed is what the last whole run of the benchmarks measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import report, rows


@pytest.mark.parametrize("page", [report.PERFORMANCE, report.README], ids=lambda page: page.name)
def test_a_page_has_the_figures_that_were_measured(page: Path) -> None:
    assert page.read_text() == report.pages()[page]


def test_no_goal_is_passed_over() -> None:
    found = report.figures_of(json.loads(report.KEPT.read_text()))
    with_goal = {name for name, figure in found.items() if figure.goal is not None}
    shown = {name for row in (*rows.GOALS, *rows.BESIDE) for name in (*row.sqlite, *row.postgres)}

    assert with_goal == shown & found.keys()
    assert {name for row in rows.GOALS for name in (*row.sqlite, *row.postgres)} <= with_goal
