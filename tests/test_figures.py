"""What the README says of speed is what the last whole run of the benchmarks measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
MEASURED: dict[str, Any] = json.loads((ROOT / "docs" / "performance.json").read_text())
FIGURES: dict[str, float] = {
    figure["name"]: figure["median"] for each in MEASURED["chapters"].values() for figure in each
}
ROWS = {
    "durable beats a second, of a no-op Starlette route's requests": (
        "SQLite: of a no-op Starlette route",
        "PostgreSQL: of a no-op Starlette route",
    ),
    "the same, times one upsert a request": (
        "SQLite: times one upsert a request",
        "PostgreSQL: times one upsert a request",
    ),
    "the same, times the open-source peer with 1,000 workers, at equal concurrency": (
        "SQLite over 4 connections: times the peer with 1,000 workers over 4",
        "PostgreSQL over 4 connections: times the peer with 1,000 workers over 4",
    ),
    "with 100,000 workers in the store, of with 100": (
        "SQLite: with 100,000 workers, of with 100 workers",
        "PostgreSQL: with 100,000 workers, of with 100 workers",
    ),
    "memory with 100,000 live workers, of with 100": (
        "SQLite: memory with 100,000 live workers, of with 100",
        "PostgreSQL: memory with 100,000 live workers, of with 100",
    ),
    "beats of known keys beside a flood of unknown ones, of without": (
        "selfhosted: beats beside a flood of unknown keys, of without",
        "cloud: beats beside a flood of unknown keys, of without",
    ),
}


def speed_table() -> dict[str, list[str]]:
    _, _, section = (ROOT / "README.md").read_text().partition("\n## Speed\n")
    table, _, _ = section.partition("\n## ")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {name: values for name, *values in rows[1:]}


def test_the_readme_has_these_figures() -> None:
    assert set(speed_table()) == set(ROWS)


@pytest.mark.parametrize(("row", "measured"), ROWS.items())
def test_a_figure_of_the_readme_is_the_measured_one(row: str, measured: tuple[str, str]) -> None:
    said = speed_table()[row]

    assert said == [
        f"{FIGURES[name]:.{_decimals(figure)}f}"
        for name, figure in zip(measured, said, strict=True)
    ]


def _decimals(said: str) -> int:
    return len(said.partition(".")[2])
