"""What people see on a terminal, and programs in a pipe."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from collector.cli.frames import View, frame
from collector.cli.tables import ago, fitted, moment, width_of
from collector.escapes import json_line, printable
from tests.factories import body
from tests.processes import Serving, run
from tests.terminal import run_on_terminal

ESCAPE = "\x1b"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONG = "reception-" + "x" * 100


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A collector with one worker, whose name is too long for any terminal."""
    with Serving(None, tmp_path) as serving:
        assert serving.key is not None
        sent = httpx2.post(
            f"{serving.url}/v1/agents/heartbeat",
            json=body(LONG, host="漢" * 30),
            headers={"Authorization": f"Bearer {serving.key}"},
        )
        assert sent.status_code == 202
        yield {"VOICEGW_COLLECTOR_URL": serving.url, "VOICEGW_API_KEY": serving.key}


def test_an_id_is_never_cut_and_an_empty_column_not_shown(env: dict[str, str]) -> None:
    shown = ANSI.sub("", run_on_terminal("agents", "list", env=env, columns=90))

    heads, row = shown.splitlines()
    assert heads.split() == ["AGENT", "NAME", "STATUS", "SESSIONS", "SEEN", "HOST"]
    assert row.startswith(f"{LONG}  reception  idle")


def test_a_narrow_terminal_gets_a_narrow_table(env: dict[str, str]) -> None:
    shown = ANSI.sub("", run_on_terminal("agents", "list", env=env, columns=170))

    assert all(width_of(line) <= 170 for line in shown.splitlines())
    assert LONG in shown
    assert "漢…" in shown


def test_a_pipe_keeps_columns_in_which_nothing_stands(env: dict[str, str]) -> None:
    listed = run("agents", "list", env=env)

    assert "VERSION  REGION  HOST" in listed.stdout


def test_keys_and_acts_are_readable_on_80_columns(tmp_path: Path) -> None:
    store = {"COLLECTOR_STORE_URL": f"sqlite:///{tmp_path}/collector.db"}
    made = ("keys", "create", "--tenant", "default", "--scopes", "ingest,read,admin", "--json")
    key = json.loads(run(*made, "--expires-in", "90d", env=store).stdout)
    new = json.loads(run("keys", "rotate", key["id"], "--json", env=store).stdout)

    keys = ANSI.sub("", run_on_terminal("keys", "list", env=store))
    acts = ANSI.sub("", run_on_terminal("audit", env=store))

    assert all(width_of(line) <= 80 for line in keys.splitlines())
    assert re.search(rf"{key['id']} +default +ingest,read,admin +\ds ago +never +in 59m", keys)
    assert "…" not in keys + acts
    assert f"successor {new['id']}" in acts
    assert re.search(r"expires_at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", acts)


def test_a_pipe_gets_everything_and_no_colour(env: dict[str, str]) -> None:
    listed = run("agents", "list", env={**env, "COLUMNS": "60"})

    assert LONG in listed.stdout
    assert ESCAPE not in listed.stdout


def test_colour_is_for_people_who_want_it(env: dict[str, str]) -> None:
    assert ESCAPE in run_on_terminal("agents", "list", env=env)

    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert ESCAPE not in run_on_terminal("agents", "list", env={**env, **plain})
        assert ESCAPE not in run_on_terminal("agents", "show", "nobody", env={**env, **plain})


def test_a_worker_is_shown_with_times_as_people_say_them(env: dict[str, str]) -> None:
    shown = run("agents", "show", LONG, env=env)

    assert re.search(r"last_seen +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, \ds ago\n", shown.stdout)


@contextmanager
def slow_server() -> Iterator[str]:
    """Takes a request, and hangs up after a second."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                threading.Event().wait(1)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_who_waits_at_a_terminal_sees_that_it_lives() -> None:
    key = "vk_" + "A" * 32
    with slow_server() as url:
        shown = run_on_terminal(
            "agents", "list", env={"VOICEGW_COLLECTOR_URL": url, "VOICEGW_API_KEY": key}
        )

    assert "\r| asking the collector" in shown
    assert "\r\x1b[K" in shown


def test_a_pipe_sees_no_such_thing() -> None:
    key = "vk_" + "A" * 32
    with slow_server() as url:
        asked = run("agents", "list", env={"VOICEGW_COLLECTOR_URL": url, "VOICEGW_API_KEY": key})

    assert "asking" not in asked.stderr


@pytest.mark.parametrize(
    ("widths", "room", "fit"),
    [
        ([10, 20, 5], None, [10, 20, 5]),
        ([10, 20, 5], 39, [10, 20, 5]),
        ([10, 20, 5], 34, [10, 15, 5]),
        ([10, 20, 5], 25, [8, 8, 5]),
        ([10, 20, 5], 1, [6, 6, 5]),
    ],
)
def test_the_widest_column_gives_way(widths: list[int], room: int | None, fit: list[int]) -> None:
    assert fitted(widths, room) == fit


def test_a_column_that_is_whole_gives_nothing() -> None:
    assert fitted([20, 20, 5], 39, [True, False, False]) == [20, 10, 5]
    assert fitted([20, 20, 5], 30, [True, False, False]) == [20, 20, 5]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0s ago"),
        (59.9, "59s ago"),
        (60, "1m ago"),
        (7200, "2h ago"),
        (86400 * 3, "3d ago"),
        (-0.5, "0s ago"),
        (-90, "in 1m"),
    ],
)
def test_an_age_is_told_as_people_say_it(seconds: float, said: str) -> None:
    assert ago(seconds) == said


def test_a_moment_has_its_date_and_its_age() -> None:
    assert moment(0, now=61) == "1970-01-01 00:00:00 UTC, 1m ago"


def test_what_would_move_the_cursor_is_shown_by_its_escape() -> None:
    assert printable("a\x1b[2Jb\nc ü漢") == "a\\u001b[2Jb\\nc ü漢"


@pytest.mark.parametrize(
    "hidden", "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
def test_what_ends_a_line_or_turns_it_around_is_shown_by_its_escape(hidden: str) -> None:
    escape = f"\\u{ord(hidden):04x}"

    assert printable(f"1-{hidden}x") == f"1-{escape}x"
    assert json_line({"id": hidden}) == f'{{"id": "{escape}"}}'


def test_json_that_is_shown_says_what_it_would_say_unescaped() -> None:
    told = {"id": 'ü漢\u2028\u202e\U000e0001\x9b"\\', "n": [1, None]}

    line = json_line(told)

    assert json.loads(line) == told
    assert "ü漢" in line


def test_escapes_are_part_of_how_wide_a_column_of_a_frame_is() -> None:
    worker = {
        "agent_id": "w-1",
        "agent_name": "\u202e" * 9,
        "status": "idle",
        "reason": "alive",
        "active_sessions": 0,
        "conflict": False,
        "cpu_pct": None,
        "memory_rss_bytes": None,
        "age_seconds": 1.0,
        "version": "1",
        "region": None,
    }
    roster = {"workers": [worker], "server_time": 0, "recent_gap": None}

    lines = frame(View(shown="workers", roster=roster), columns=80)

    assert max(width_of(ANSI.sub("", line)) for line in lines) <= 80
    assert not any("\u202e" in line or "NAME" in line for line in lines)


def test_wide_and_combining_characters_are_measured_as_they_are_shown() -> None:
    assert [width_of(text) for text in ("abc", "漢字", "e\u0301")] == [3, 4, 1]
