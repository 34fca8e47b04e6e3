"""Log lines: who asked, for people and for programs, and floods in one line."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
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


def failure(message: str = "it failed") -> logging.LogRecord:
    """A line with a traceback; each call fails at the same place."""
    made = record(message, levelno=logging.ERROR)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        made.exc_info = sys.exc_info()
    return made


@pytest.mark.parametrize("status", [401, 503, 500])
def test_of_a_flood_the_first_are_told_and_the_rest_summed_up(
    caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.INFO, logs.REQUESTS)
    flood = logs.Flood()

    told = [flood.filter(record(status=status)) for _ in range(25)]
    others = [flood.filter(record(status=other)) for other in (202, 404, 504)]
    flood.sum_up()

    assert (sum(told), all(others)) == (10, True)
    assert [line.getMessage()[:41] for line in caplog.records] == [
        f"15 more requests were answered {status} in the"
    ]
    assert flood.filter(record(status=status))


def test_warnings_of_one_place_are_summed_up_by_their_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flood = logs.Flood()

    lines = [record(f"commit {n} failed", levelno=logging.WARNING, lineno=7) for n in range(25)]
    told = [flood.filter(line) for line in lines]
    another = flood.filter(record("of another place", levelno=logging.WARNING, lineno=8))
    flood.sum_up()

    assert (sum(told), another) == (10, True)
    (summed_up,) = caplog.records
    assert re.fullmatch(
        r"15 more like this in the last \d+ s: commit 24 failed", summed_up.getMessage()
    )
    assert flood.filter(summed_up)


def test_a_second_defect_is_seen_beside_a_flood_of_another() -> None:
    flood = logs.Flood()
    second = record("it failed", levelno=logging.ERROR)
    try:
        raise KeyError
    except KeyError:
        second.exc_info = sys.exc_info()

    told = [flood.filter(failure()) for _ in range(25)]

    assert (sum(told), flood.filter(second)) == (10, True)


def test_what_is_well_is_never_summed_up() -> None:
    flood = logs.Flood()

    assert all(flood.filter(record(status=202)) for _ in range(25))
    assert all(flood.filter(record("started")) for _ in range(25))


class Callers(logging.Handler):
    """How grave each line is, and whose."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.levelname, logs.caller.get()))


def test_a_sum_names_nobody_whose_line_came_by_chance() -> None:
    flood, watch = logs.Flood(), Callers()
    logs.caller.set(("acme", "ABCD2345"))
    logging.getLogger(logs.REQUESTS).addHandler(watch)
    for _ in range(11):
        flood.filter(record(status=503, levelno=logging.WARNING))

    flood.sum_up()

    logging.getLogger(logs.REQUESTS).removeHandler(watch)
    assert watch.seen == [("WARNING", None)]


def test_what_is_no_http_at_all_floods_nothing(tmp_path: Path) -> None:
    with Serving(f"sqlite:///{tmp_path / 'collector.db'}", tmp_path) as serving:
        host, port = serving.url.removeprefix("http://").split(":")
        for _ in range(30):
            with socket.create_connection((host, int(port))) as caller:
                caller.sendall(b"nonsense\r\n\r\n")
                while caller.recv(4096):
                    pass
        assert serving.stop() == 0
        log = serving.errors

    assert log.count('"message": "Invalid HTTP request received."') == 10
    assert "20 more like this in the last" in log


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
