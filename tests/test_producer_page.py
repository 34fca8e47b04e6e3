"""What docs/producer.md says of `register_worker` is so."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

from contract import RegisteredWorker, register_worker
from contract.producer import State, pulse, schedule

PAGE = (Path(__file__).parents[1] / "docs" / "producer.md").read_text()
UNUSED = {"tenant_id", "local", "db_path"}


def cells(section: str) -> list[list[str]]:
    """The words in code of each row of the section's table, by its first column."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in re.findall(r"^\|.*", text, re.M)]


def test_every_keyword_is_explained() -> None:
    told = {word for row in cells("What it is told") for word in row}

    assert told | UNUSED == set(inspect.signature(register_worker).parameters)
    assert all(f"`{name}`" in PAGE for name in UNUSED)


def test_every_method_of_the_handle_is_explained() -> None:
    told = {
        word.removeprefix("worker.").removesuffix("()")
        for row in cells("What it can do")
        for word in row
        if word.startswith("worker.")
    }

    assert told == {"session", "busy", "idle", "beat_now", "leave", "state"}
    assert all(hasattr(RegisteredWorker, name) for name in told)


def test_every_part_of_the_state_is_explained() -> None:
    row = next(row for row in PAGE.splitlines() if row.startswith("| `worker.state`"))
    fields = {field.name for field in dataclasses.fields(State)} - {"agent_id"}

    assert fields <= set(re.findall(r"`([a-z_]+)`", row))


def test_the_limits_are_the_ones_that_are_kept() -> None:
    assert f"one\nattempt takes {pulse.ATTEMPT_SECONDS:g} s at most" in PAGE
    assert (pulse.LEAVE_SECONDS, schedule.NUDGE_SECONDS) == (1, 1)
    assert "say goodbye and beat no more; takes a second at most" in PAGE
    assert "one below a second is a second" in PAGE


def test_every_variable_is_explained() -> None:
    source = inspect.getsource(inspect.getmodule(register_worker))  # type: ignore[arg-type]

    assert set(re.findall(r"VOICEGW_[A-Z_]+", source)) == set(re.findall(r"VOICEGW_[A-Z_]+", PAGE))
