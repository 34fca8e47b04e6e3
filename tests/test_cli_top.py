"""`collector agents top`: its frames, its keys, and the terminal that it gives back."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click import unstyle

from collector.cli.frames import SORTS, View, frame, summary
from collector.cli.keyboard import keys
from collector.cli.tables import width_of
from collector.workers import project
from tests.factories import at, body
from tests.factories import worker as row
from tests.processes import Serving, run, wait_until
from tests.terminal import ANSI, Session, run_on_terminal

UP, DOWN, END = "\x1b[A", "\x1b[B", "\x1b[F"
LEFT_THE_SCREEN = "\x1b[?25h\x1b[?1049l"


def worker(agent_id: str, *, seconds: float = 0, **fields: Any) -> dict[str, Any]:
    """A worker of the wire, whose last beat came so many seconds ago."""
    return project(row(agent_id=agent_id, last_seen=at(-seconds), **fields), at(0))


def roster(*workers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"workers": list(workers), "server_time": 3661.0, "recent_gap": None, **fields}


def shown(view: View, columns: int | None = None, rows: int | None = None) -> list[str]:
    return [unstyle(line) for line in frame(view, columns, rows)]


def order(sort: str, *workers: dict[str, Any]) -> str:
    """The ids, a letter each, as the frame has them."""
    told = shown(View(sort, "workers", roster=roster(*workers)))
    return "".join(line.split()[0] for line in told[4:])


FLEET = roster(
    worker("a", agent_name="billing", status="busy", active_sessions=2, version="1.9"),
    worker("b", agent_name="billing", version="1.10"),
    worker("c", agent_name="billing", version="1.8", seconds=46),
    worker("d", agent_name="reception", status="offline"),
)


def test_a_frame_tells_how_many_do_what() -> None:
    title, numbers, *_ = shown(View(roster=FLEET))

    assert title == "collector agents top  01:01:01 UTC  connected"
    assert numbers == "2 online  1 busy  1 idle  1 lost  1 left  2 sessions"


def test_two_versions_at_once_are_marked_and_those_of_the_dead_do_not_count() -> None:
    billing, reception = shown(View(roster=FLEET))[4:6]

    assert re.split("  +", billing) == [
        *("billing", "2", "1", "1", "1", "0", "2", "2 at once: 1.9 ×1, 1.10 ×1"),
    ]
    assert reception.split() == ["reception", "0", "0", "0", "0", "1", "0"]


def test_a_gap_of_the_collectors_and_a_conflict_are_said() -> None:
    both = worker("a", conflict_seen=at(-1))
    told = shown(View(roster=roster(both, recent_gap={"began_at": 0, "ended_at": 60})))

    assert told[1].endswith("1 in conflict")
    assert told[2].startswith("No collector listened from 00:00:00 to 00:01:00 UTC")


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_is_one(sort: str) -> None:
    first = {
        "status": worker("z", status="busy"),
        "sessions": worker("z", status="busy", active_sessions=3),
        "cpu": worker("z", cpu_pct=9.0),
        "memory": worker("z", memory_rss_bytes=2**30),
        "seen": worker("z"),
        "name": worker("z", agent_name="a"),
    }[sort]
    second = worker("y", seconds=1, cpu_pct=1.0, memory_rss_bytes=2**20)
    gone = worker("x", seconds=60, cpu_pct=99.0, memory_rss_bytes=2**40, agent_name="zz")

    # Of states, those that are trouble come first.
    assert order(sort, gone, second, first) == ("xzy" if sort == "status" else "zyx")


def test_a_conflict_comes_before_all_others() -> None:
    lost, beside = worker("a", seconds=60), worker("b") | {"conflict": True}

    assert order("status", worker("c", status="busy"), lost, beside) == "bac"


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("rows", [1, 2, 5, 10, 24, 100])
@pytest.mark.parametrize("view", ["both", "groups", "workers"])
def test_a_frame_is_never_larger_than_the_terminal(view: str, rows: int, columns: int) -> None:
    many = [worker(f"{n}-漢字", agent_name=f"name-{n % 30}", version="1") for n in range(60)]

    told = shown(View(shown=view, roster=roster(*many)), columns, rows)

    assert len(told) <= rows
    assert all(width_of(line) <= columns for line in told)


def test_columns_give_way_before_an_id_does() -> None:
    long = worker("a-worker-with-quite-a-long-id-of-its-own", version="1", cpu_pct=1.0)

    heads, line = shown(View(shown="workers", roster=roster(long)), 80)[3:]

    assert heads.split() == ["AGENT", "STATUS", "SESSIONS", "CPU", "SEEN"]
    assert line.startswith("a-worker-with-quite-a-long-id-of-its-own  idle")


def test_scrolling_ends_where_the_list_does() -> None:
    view = View("name", "workers", offset=10**9, roster=roster(*map(worker, "abcdefghijkl")))

    told = shown(view, 80, 10)

    assert [line.split()[0] for line in told[4:-1]] == ["h", "i", "j", "k", "l"]
    assert told[-1].endswith("8–12 of 12")
    assert view.offset == 7


def test_a_collector_that_is_away_leaves_what_was_known() -> None:
    view = View(roster=FLEET, away_since=0.0, trouble="no collector answers")

    title, numbers, *_ = shown(view)

    assert title.endswith("no answer since 00:00:00 UTC, trying again: no collector answers")
    assert numbers.startswith("2 online")


def test_what_a_worker_is_called_does_nothing_to_the_terminal() -> None:
    told = "".join(frame(View(roster=roster(worker("\x1b[2J", agent_name="\x1b[2J")))))

    assert "\x1b[2J" not in told


def test_a_summary_is_the_roster_in_numbers() -> None:
    told = summary(FLEET)

    assert (told["workers"], told["online"], told["lost"], told["left"]) == (4, 2, 1, 1)
    assert [group["agent_name"] for group in told["groups"]] == ["billing", "reception"]
    assert [each["version"] for each in told["groups"][0]["versions"]] == ["1.9", "1.10"]


@pytest.mark.parametrize(
    ("typed", "pressed", "rest"),
    [
        ("qs", ["q", "s"], ""),
        ("\x1b[A\x1bOB", ["up", "down"], ""),
        ("\x1b[5~\x1b[6~g", ["page up", "page down", "g"], ""),
        ("s\x1b[", ["s"], "\x1b["),
        ("\x1b[24~x", ["x"], ""),
        ("\x1b\x1b[A", ["up"], ""),
    ],
)
def test_keys_are_told_from_what_a_terminal_sends(
    typed: str, pressed: list[str], rest: str
) -> None:
    assert keys(typed) == (pressed, rest)


class Watched:
    """A collector with thirty workers of three kinds."""

    def __init__(self, serving: Serving) -> None:
        assert serving.key is not None
        self.serving = serving
        self.env = {"VOICEGW_COLLECTOR_URL": serving.url, "VOICEGW_API_KEY": serving.key}
        headers = {"Authorization": f"Bearer {serving.key}"}
        with httpx2.Client(base_url=serving.url, headers=headers) as http:
            for n in range(30):
                sent = body(f"worker-{n:02}", agent_name=f"kind-{n % 3}", cpu_pct=n, version="1")
                assert http.post("/v1/agents/heartbeat", json=sent).status_code == 202


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with Serving(None, tmp_path) as serving:
        yield Watched(serving)


def is_whole(screen: str) -> bool:
    return "q quit" in screen


def test_a_terminal_is_filled_answers_to_keys_and_is_given_back(watched: Watched) -> None:
    with Session("agents", "top", "--sort", "name", env=watched.env) as session:
        screen = session.sees(is_whole).splitlines()
        assert len(screen) == 24
        assert all(width_of(line) <= 80 for line in screen)
        assert screen[1].startswith("30 online  0 busy  30 idle")
        assert "worker-00" in screen[8] + screen[9]
        assert session.modes != session.modes_before

        session.type(DOWN * 2 + UP)
        session.sees(lambda told: "2–" in told and "of 30" in told)
        session.type(END)
        session.sees(lambda told: "–30 of 30" in told and "worker-29" in told)
        session.type("g")
        session.sees(lambda told: "view: groups" in told and "AGENT" not in told)
        session.type("g")
        session.sees(lambda told: "view: workers" in told and "ONLINE" not in told)
        session.type("ss")
        session.sees(lambda told: "sort: sessions" in told)
        session.type("s")
        top = session.sees(lambda told: "sort: cpu" in told).splitlines()
        assert top[4].startswith("worker-29")

        session.type("q")
        assert session.end() == 0
        assert session.modes == session.modes_before
        assert session.written.endswith(LEFT_THE_SCREEN)


def test_a_new_size_is_heeded_at_once(watched: Watched) -> None:
    with Session("agents", "top", "--every", "1h", env=watched.env) as session:
        session.sees(is_whole)
        session.resize(12, 60)
        session.signal(signal.SIGWINCH)

        screen = session.sees(lambda told: is_whole(told) and len(told.splitlines()) == 12)

    assert all(width_of(line) <= 60 for line in screen.splitlines())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back_too(watched: Watched, number: int) -> None:
    with Session("agents", "top", env=watched.env) as session:
        session.sees(is_whole)

        session.signal(number)

        assert session.end() == 0
        assert session.modes == session.modes_before
        assert session.written.endswith(LEFT_THE_SCREEN)


def test_a_stopped_one_gives_the_terminal_back_and_takes_it_again(watched: Watched) -> None:
    with Session("agents", "top", env=watched.env) as session:
        session.sees(is_whole)
        session.signal(signal.SIGTSTP)
        session.sees(lambda _: session.written.endswith(LEFT_THE_SCREEN))
        wait_until(session.is_stopped)
        assert session.modes == session.modes_before

        session.signal(signal.SIGCONT)

        session.sees(lambda _: is_whole(session.written.rpartition(LEFT_THE_SCREEN)[2]))
        session.type("q")
        assert session.end() == 0


def test_a_collector_that_goes_away_is_waited_for(watched: Watched, tmp_path: Path) -> None:
    with Session("agents", "top", "--every", "1s", env=watched.env) as session:
        session.sees(lambda told: "connected" in told)
        port = int(watched.serving.url.rpartition(":")[2])

        watched.serving.kill()
        away = session.sees(lambda told: "no answer since" in told and is_whole(told))
        with Serving(None, tmp_path, port=port):
            back = session.sees(lambda told: "connected" in told and is_whole(told))

    assert re.search(r"no answer since \d\d:\d\d:\d\d UTC, trying again", away)
    assert "30 online" in away
    assert "30 online" in back


def test_a_key_that_does_not_open_ends_it_with_the_terminal_as_it_was(watched: Watched) -> None:
    env = {**watched.env, "VOICEGW_API_KEY": "vk_" + "A" * 32}
    with Session("agents", "top", env=env) as session:
        assert session.end() == 4
        assert session.modes == session.modes_before

    told = session.written.rpartition(LEFT_THE_SCREEN)[2]
    assert "VOICEGW_API_KEY: The key is unknown" in told


def test_where_there_is_no_terminal_one_frame_is_all(watched: Watched) -> None:
    piped = run("agents", "top", "--name", "kind-1", env=watched.env)
    plain = run_on_terminal("agents", "top", env={**watched.env, "TERM": "dumb"})
    once = ANSI.sub("", run_on_terminal("agents", "top", "--once", env=watched.env))

    assert piped.stdout.count("worker-") == 10
    assert "q quit" not in piped.stdout + once + plain
    assert once.count("worker-") == 30
    assert "\x1b" not in piped.stdout + plain


def test_programs_get_one_summary(watched: Watched) -> None:
    told = json.loads(run("agents", "top", "--json", "--status", "idle", env=watched.env).stdout)

    assert (told["online"], told["idle"], told["busy"]) == (30, 30, 0)
    assert [group["workers"] for group in told["groups"]] == [10, 10, 10]


@pytest.mark.parametrize("often", ["0s", "2h", "x"])
def test_how_often_is_checked(often: str) -> None:
    refused = run("agents", "top", "--every", often, env={"VOICEGW_API_KEY": "k"})

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--every" in refused.stderr
