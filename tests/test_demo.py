"""`collector demo`: the story, its last hour in a store, and the real command from start to end."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

import httpx2
import pytest

from collector.demo.past import live_through
from collector.demo.scenario import BEGINS_AT, Scenario, Sent
from collector.settings import Settings
from collector.store.open import store_for
from collector.values import SECOND, RosterQuery
from collector.workers import liveness
from contract.vocabulary import BEAT_SECONDS, COMPARED_FIELDS
from contract.worker import Heartbeat
from tests.factories import START
from tests.fleet import TestClock
from tests.processes import COMMAND, DEADLINE_SECONDS, environment, run, text_of, wait_until

MINUTE = 60.0


def scenario(workers: int = 24, seed: int = 1, opened_at: float = 0.0, **given: Any) -> Scenario:
    return Scenario(workers=workers, seed=seed, opened_at=opened_at, **given)


def sent(playing: Scenario, since: float = BEGINS_AT, until: float = MINUTE) -> list[Sent]:
    return [each for each in playing.until(until) if each.at >= since]


def processes(found: list[Sent]) -> dict[tuple[str, int], list[Sent]]:
    each: dict[tuple[str, int], list[Sent]] = {}
    for one in found:
        each.setdefault(one.process, []).append(one)
    return each


# The story


def test_one_seed_is_one_story_and_another_is_another() -> None:
    story = sent(scenario(seed=7))

    assert story == sent(scenario(seed=7))
    assert story != sent(scenario(seed=8))


def test_a_story_is_the_same_whenever_it_is_told_and_in_whatever_steps() -> None:
    now, later = scenario(), scenario(opened_at=1_000_000)
    in_steps = [each for minute in range(-61, 2) for each in later.until(minute * MINUTE)]

    told = [(each.at, each.process, each.body["active_sessions"]) for each in sent(now)]

    assert told == [(e.at, e.process, e.body["active_sessions"]) for e in in_steps]
    assert in_steps[0].body["ts"] == pytest.approx(1_000_000 + in_steps[0].at, abs=0.001)


def test_every_beat_is_one_that_a_collector_takes() -> None:
    for each in sent(scenario(opened_at=START / SECOND)):
        Heartbeat.model_validate(each.body)


def test_the_fleet_is_of_several_kinds_regions_hosts_and_projects() -> None:
    story = sent(scenario())

    several = {
        field: len({each.body[field] for each in story})
        for field in ("agent_id", "agent_name", "region", "host", "project")
    }

    assert several["agent_id"] == 24
    assert several["agent_name"] == 5
    assert min(several.values()) >= 3


def test_who_is_here_beats_every_fifteen_seconds_or_sooner() -> None:
    for story in processes(sent(scenario())).values():
        for one, next_one in pairwise(story):
            is_same = one.body["started_at"] == next_one.body["started_at"]
            if is_same and one.body["status"] != "offline":
                assert next_one.at - one.at <= BEAT_SECONDS + 1


@pytest.mark.parametrize("seed", range(5))
def test_all_of_it_is_seen_within_the_first_minute(seed: int) -> None:
    playing = scenario(seed=seed)
    before = {each.process: each for each in sent(playing, until=0)}
    story = sent(playing, since=0)
    after = processes(story)

    sessions = {each.body["active_sessions"] for each in story}
    statuses = Counter(each.body["status"] for each in story)
    versions = {
        kind: {e.body["version"] for e in story if e.body["agent_name"] == kind}
        for kind in {each.body["agent_name"] for each in story}
    }
    silent = [
        who
        for who, last in before.items()
        if last.body["status"] != "offline" and who not in after and last.at > -2 * MINUTE
    ]

    assert len(sessions) > 3
    assert min(statuses[each] for each in ("idle", "busy", "offline")) > 0
    assert max(map(len, versions.values())) == 2, "one kind is deployed"
    assert set(after) - set(before), "somebody comes"
    assert [who for who in after if who[1] == 1], "two share an id"
    assert silent, "somebody crashed"


def test_a_deployment_goes_worker_by_worker() -> None:
    playing = scenario(workers=60)
    sent(playing, until=0)
    story = [e for e in sent(playing, since=0) if e.body["agent_name"] == "billing"]
    newest = max((each.body["version"] for each in story), key=lambda v: int(v.split(".")[1]))

    first: dict[tuple[str, int], float] = {}
    for each in story:
        if each.body["version"] == newest and each.process[1] == 0:
            first.setdefault(each.process, each.at)

    assert len(first) >= 5
    assert len(set(first.values())) == len(first)
    assert max(first.values()) - min(first.values()) > 20


def test_who_leaves_or_crashes_comes_back() -> None:
    story = sent(scenario(), since=0, until=20 * MINUTE)
    last = {each.process[0]: each for each in story}

    assert len(last) == 24
    assert all(each.at > 15 * MINUTE for each in last.values())


def test_a_second_process_was_started_after_the_first_and_elsewhere() -> None:
    story = sent(scenario())
    second = next(each for each in story if each.process[1] == 1)
    first = next(
        each for each in story if each.process == (second.process[0], 0) and each.at > second.at
    )

    assert first.body["started_at"] < second.body["started_at"]
    assert first.body["host"] != second.body["host"]


def test_memory_and_cpu_follow_the_sessions() -> None:
    story = [each.body for each in sent(scenario()) if each.body["agent_name"] == "transcriber"]
    idle = [each for each in story if each["active_sessions"] == 0]
    full = [each for each in story if each["active_sessions"] >= 6]

    assert max(each["cpu_pct"] for each in idle) < min(each["cpu_pct"] for each in full)
    assert all(0 < each["cpu_pct"] < 100 for each in story)
    assert all(2**27 < each["memory_rss_bytes"] < 2**31 for each in story)


def test_as_many_changes_are_made_as_asked_for() -> None:
    playing = scenario(workers=500, changes_per_second=50)
    sent(playing, until=0)

    story = processes(sent(playing, since=0))
    changes = sum(
        one.body["active_sessions"] != next_one.body["active_sessions"]
        for told in story.values()
        for one, next_one in pairwise(told)
    )

    assert changes / MINUTE == pytest.approx(50, rel=0.2)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 13])
def test_a_small_fleet_has_a_story_too(workers: int) -> None:
    story = sent(scenario(workers), since=0, until=10 * MINUTE)

    assert {each.process[0] for each in story} == {m.agent_id for m in scenario(workers).members}


# The past


async def test_the_last_hour_is_in_the_store_with_a_gap_of_the_collectors(
    tmp_path: Path, migrated_file: Path
) -> None:
    path = shutil.copy(migrated_file, tmp_path / "collector.db")
    store, clock = store_for(Settings(store_url=f"sqlite:///{path}")), TestClock()
    await store.open(serving=True)

    playing = scenario(opened_at=START / SECOND)
    await live_through(playing, store, tenant_id="acme", opened_at=START, clock=clock)

    minute = 60 * SECOND
    online = await store.presence("acme", since=START - 60 * minute, step=minute, steps=60)
    workers = await store.roster("acme", RosterQuery(), now=START)
    (gap,) = await store.gaps(since=0)
    log = Counter(each.type for each in await store.events("acme", after=0, limit=100_000))
    await store.close()
    assert min(online) > 0
    assert len(set(online)) > 5
    assert (gap.ended_at - gap.began_at) // SECOND in range(120, 140)
    assert all(each.last_seen <= START for each in workers)
    assert {liveness(each, START).status for each in workers} == {"idle", "busy", "offline"}
    assert set(log) == {"online", "changed", "left", "offline", "conflict"}
    assert min(each.at for each in sent(playing)) > 0, "what is heard next goes on from here"


# The command


class Demo:
    """`collector demo`, with a place of its own for temporary files."""

    def __init__(self, place: Path, *args: str) -> None:
        with ExitStack() as stack:
            # Files, not pipes: nobody has to read them for the demo to go on writing.
            self._output = stack.enter_context(TemporaryFile())
            self._errors = stack.enter_context(TemporaryFile())
            self.process = subprocess.Popen(
                [COMMAND, "demo", *args],
                # A store of somebody's own, which is not to be touched.
                env=environment({"TMPDIR": str(place), "COLLECTOR_STORE_URL": "sqlite:////no/db"}),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._errors,
            )
            self._closing = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_SECONDS)
        self._closing.close()

    def opened(self) -> Self:
        wait_until(lambda: "Ctrl-C" in self.output or self.process.poll() is not None)
        assert self.process.poll() is None, self.errors
        return self

    @property
    def output(self) -> str:
        return text_of(self._output)

    @property
    def errors(self) -> str:
        return text_of(self._errors)

    @property
    def url(self) -> str:
        return self._told(r"listens on (http://127\.0\.0\.1:\d+),")

    @property
    def key(self) -> str:
        return self._told(r"VOICEGW_API_KEY=(vk_\w+)")

    def get(self, path: str, **query: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.key}"}
        answer = httpx2.get(self.url + path, params=query, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)

    def _told(self, pattern: str) -> str:
        found = re.search(pattern, self.output)
        assert found is not None, self.output
        return found[1]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo")) as playing:
        yield playing.opened()


def test_a_newcomer_finds_a_fleet_at_work(demo: Demo) -> None:
    workers = demo.get("/v1/agents")["workers"]

    assert {each["status"] for each in workers} == {"idle", "busy", "offline"}
    assert len(workers) >= 20
    assert len({each["agent_name"] for each in workers}) == 5
    assert all(each["cpu_pct"] and each["memory_pct"] for each in workers)


def test_the_last_hour_is_there_to_be_seen(demo: Demo) -> None:
    told = demo.get("/v1/presence")

    assert len(told["online"]) == 60
    assert min(told["online"]) > 0
    assert [round(gap["seconds"] / 60) for gap in told["gaps"]] == [2]


def test_the_fleet_goes_on_over_http(demo: Demo) -> None:
    cursor = demo.get("/v1/events", last=0)["cursor"]

    events = demo.get("/v1/events", after=cursor, wait=25)["events"]

    assert events
    assert all(set(each["worker"]) > set(COMPARED_FIELDS) for each in events)


def test_the_key_opens_everything_and_the_fleet_has_another(demo: Demo) -> None:
    keys = {each["name"]: each["scopes"] for each in demo.get("/v1/keys")["keys"]}

    assert keys == {"visitor": ["ingest", "read", "admin"], "fleet": ["ingest"]}


def test_it_is_what_the_other_commands_are_shown_with(demo: Demo) -> None:
    env = {"VOICEGW_COLLECTOR_URL": demo.url, "VOICEGW_API_KEY": demo.key}

    shown = run("agents", "top", env=env)

    assert shown.returncode == 0
    assert re.search(r"^\d+ online  \d+ busy", shown.stdout, re.MULTILINE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_its_end_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    with Demo(tmp_path, "--workers", "5") as playing:
        port = int(playing.opened().url.rpartition(":")[2])
        assert list(tmp_path.iterdir())

        code = playing.end(number)

        assert (code, playing.errors) == (0, "")
        assert playing.output.endswith("nothing of it is left.\n")
        assert list(tmp_path.iterdir()) == []
        with socket.socket() as caller:
            assert caller.connect_ex(("127.0.0.1", port)) != 0


def test_who_ends_it_before_it_opens_finds_nothing_left_either(tmp_path: Path) -> None:
    with Demo(tmp_path, "--workers", "5000") as playing:
        wait_until(lambda: bool(list(tmp_path.glob("*/*.db"))))

        code = playing.end(signal.SIGTERM)

        assert (code, playing.errors) == (0, "")
        assert "listens on" not in playing.output
        assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_said_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = run("demo", "--port", port, env={"TMPDIR": str(tmp_path)})

    assert refused.returncode == 1
    assert "--port" in refused.stderr
    assert list(tmp_path.iterdir()) == []
