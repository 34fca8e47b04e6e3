"""What the pages say of speed is what the last whole run of the benchmarks measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import report


@pytest.mark.parametrize("page", [report.PERFORMANCE, report.README], ids=lambda page: page.name)
def test_a_page_has_the_figures_that_were_measured(page: Path) -> None:
    assert page.read_text() == report.pages()[page]


def test_no_goal_is_passed_over() -> None:
    with_goal = {
        name for name, figure in report.figures_of(report.KEPT).items() if figure.goal is not None
    }
    shown = {name for row in report.GOALS for name in (*row.sqlite, *row.postgres)}

    assert with_goal == shown
