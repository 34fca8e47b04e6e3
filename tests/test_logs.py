"""Log lines: who asked, for people and for programs, and floods in one line."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import httpx2
import pytest

from collector import logs
from tests.fleet import Fleet
from tests.processes import Serving, create_key


def record(message: str = "hello", **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("collector.request", logging.INFO, "", 0, message, None, None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_line_for_programs_is_one_object_with_who_asked() -> None:
    logs.request_id.set("r-1")
    logs.caller.set(("acme", "ABCD2345"))

    line = json.loads(logs.JsonFormatter().format(record("two\nlines")))

    assert line["message"] == "two\nlines"
    assert (line["request_id"], line["tenant"], line["key_id"]) == ("r-1", "acme", "ABCD2345")
    assert line["level"] == "info"


@pytest.mark.parametrize("formatter", [logs.Formatter(), logs.JsonFormatter()])
def test_no_line_has_a_key(formatter: logging.Formatter) -> None:
    key = "vk_" + "A" * 32

    assert key not in formatter.format(record(f"it was {key}"))


async def test_a_refusal_is_logged_with_the_tenant_and_the_key(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logs.REQUESTS)
    caplog.handler.setFormatter(logs.Formatter())

    await fleet.beat("w", status="purple")
    await fleet.http.get("/v1/agents")

    known, unknown = caplog.text.splitlines()[-2:]
    assert f" acme {(await fleet.key())[3:11]}]" in known
    assert "acme" not in unknown


def test_of_a_flood_the_first_are_told_and_the_rest_summed_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logs.REQUESTS)
    flood = logs.Flood()

    told = [flood.filter(record(status=401)) for _ in range(25)]
    others = [flood.filter(record(status=status)) for status in (202, 404, 503)]
    flood.sum_up()

    assert (sum(told), all(others)) == (10, True)
    assert [line.getMessage()[:41] for line in caplog.records] == [
        "15 more requests were answered 401 in the"
    ]
    assert flood.filter(record(status=401))


def test_a_collector_whose_log_nobody_watches_writes_json(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'collector.db'}"
    key = create_key(url)["key"]
    with Serving(url, tmp_path) as serving:
        for _ in range(50):
            httpx2.get(
                f"{serving.url}/v1/agents?colour=x", headers={"Authorization": f"Bearer {key}"}
            )
        log = serving.errors

    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    refusals = [line for line in lines if line["logger"] == "collector.request"]
    assert len([line for line in refusals if line["message"].endswith(" 422")]) == 10
    assert {line["tenant"] for line in refusals} == {"acme"}
    assert key not in log
