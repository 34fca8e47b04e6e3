"""What a worker says, and when; long spans are simulated by a clock of the producer's own."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from contract import RegisteredWorker, register_worker, schema
from contract.producer import pulse, registry
from contract.producer.record import State
from tests.between import Between
from tests.fleet import Fleet
from tests.hosts import DEADLINE_SECONDS, SteppedClock, until
from tests.test_contract import OPTIONAL_FIELDS, SEED_FIELDS

pytestmark = pytest.mark.anyio

HOUR = 3_600


@pytest.fixture
def backend() -> str:
    """The producer knows no store: one is enough."""
    return "selfhosted"


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    clock = SteppedClock()
    monkeypatch.setattr(registry, "clock", clock)
    return clock


class Given:
    """Registers workers that beat to one collector, and has them leave."""

    def __init__(self, url: str, key: str) -> None:
        self._where = {"collector_url": url, "api_key": key}
        self.workers: list[RegisteredWorker] = []

    def worker(self, **asked: Any) -> RegisteredWorker:
        asked = {"agent_name": "reception", "agent_id": "host-1", **self._where, **asked}
        self.workers.append(register_worker(**asked))
        return self.workers[-1]

    def leave(self) -> None:
        for worker in self.workers:
            worker.leave()


@pytest.fixture
async def between(fleet: Fleet) -> Any:
    async with Between.before(fleet.url) as made:
        yield made


@pytest.fixture
async def given(fleet: Fleet, between: Between) -> Any:
    """Through a stretch of network, in which all beats are seen."""
    made = Given(between.url, await fleet.key())
    yield made

    await asyncio.to_thread(made.leave)


async def beats(between: Between, count: int) -> None:
    async def is_enough() -> bool:
        return len(between.requests) >= count

    await until(is_enough)


async def test_a_beat_has_the_contracts_fields_and_no_other(given: Given, between: Between) -> None:
    given.worker(project="p", region="r", version="v", dispatch_name="d")
    await beats(between, 1)

    (beat,) = between.beats
    properties = json.loads((schema.DIRECTORY / "heartbeat.json").read_text())["properties"]
    assert set(beat) == set(properties) == SEED_FIELDS | OPTIONAL_FIELDS
    said = ("agent_id", "agent_name", "project", "region", "version", "dispatch_name", "tenant_id")
    assert [beat[name] for name in said] == ["host-1", "reception", "p", "r", "v", "d", None]


async def test_what_is_not_given_is_read_from_the_environment(
    given: Given, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICEGW_AGENT_ID", "from-the-environment")
    monkeypatch.setenv("VOICEGW_REGION", "iad")
    monkeypatch.setenv("VOICEGW_PROJECT", "realty")

    worker = given.worker(agent_id=None)
    await beats(between, 1)

    (beat,) = between.beats
    assert str(worker) == worker.agent_id == "from-the-environment"
    assert (beat["region"], beat["project"]) == ("iad", "realty")


async def test_without_any_word_it_is_named_like_its_host_and_dispatched_by_its_name(
    given: Given, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AGENT_ID", "REGION", "PROJECT"):
        monkeypatch.delenv(f"VOICEGW_{name}", raising=False)

    given.worker(agent_id=None)
    await beats(between, 1)

    (beat,) = between.beats
    assert beat["agent_id"] == beat["host"]
    assert (beat["dispatch_name"], beat["project"]) == ("reception", "default")
    assert (beat["region"], beat["version"]) == (None, None)


async def test_a_worker_may_have_no_dispatch_name(given: Given, between: Between) -> None:
    given.worker(dispatch_name=None)
    await beats(between, 1)

    assert between.beats[0]["dispatch_name"] is None


async def test_what_is_taken_and_not_used_is_said_once(
    given: Given, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_told_unused", set())

    for _ in range(2):
        given.worker(tenant_id="acme", local=True, db_path="/somewhere")

    assert [record.getMessage() for record in caplog.records] == [
        "register_worker does not use tenant_id: the key decides the tenant",
        "register_worker does not use local: a worker beats to a collector, also on one machine",
        "register_worker does not use db_path: the collector has the store",
    ]


async def test_over_an_hour_it_beats_every_15_seconds_with_jitter_and_never_late(
    given: Given, between: Between, own_clock: SteppedClock
) -> None:
    worker = given.worker()

    waits = [await own_clock.step() for _ in range(HOUR // 15)]

    assert all(13.5 <= wait <= 15 for wait in waits)
    assert len({round(wait, 3) for wait in waits}) > 100
    assert len(between.requests) == len(waits) + 1
    assert worker.state.failures == ()


@pytest.mark.parametrize(
    ("asked", "interval", "longest"),
    [(30, None, 30), (30, 5, 5), (15, 60, 15), (0, None, 1), (1e9, None, 300), ("x", None, 15)],
)
async def test_it_follows_what_the_collector_asks_for(
    given: Given,
    between: Between,
    own_clock: SteppedClock,
    asked: object,
    interval: float | None,
    longest: float,
) -> None:
    between.mode, between.status, between.body = "answer", 202, {"next_beat_seconds": asked}

    given.worker(interval=interval)

    assert longest * 0.9 <= await own_clock.step() <= longest


@pytest.mark.parametrize(
    ("retry_after", "shortest"),
    [("60", 60), ("86400", 300), ("Wed, 21 Oct 2026 07:28:30 GMT", 30), ("soon", 0.5)],
)
async def test_it_waits_as_long_as_retry_after_says(
    given: Given, between: Between, own_clock: SteppedClock, retry_after: str, shortest: float
) -> None:
    between.mode, between.status = "answer", 429
    # A date is taken by the clock of the server that gave it.
    between.headers = {"Retry-After": retry_after, "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}

    worker = given.worker()
    await beats(between, 1)
    # A session opens meanwhile: that is no reason to come earlier.
    with worker.session():
        assert shortest <= await own_clock.step() <= shortest * 1.1 + 1


async def test_through_an_outage_of_an_hour_it_backs_off_to_15_seconds_and_says_two_lines(
    given: Given, between: Between, own_clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    between.mode = "answer"
    worker = given.worker()

    waits = [await own_clock.step() for _ in range(HOUR // 15)]
    between.mode = "pass"
    await own_clock.step()

    assert [wait <= most for wait, most in zip(waits, (1, 2, 4, 8), strict=False)] == [True] * 4
    assert all(7.5 <= wait <= 15 for wait in waits[4:])
    assert worker.state.consecutive_failures == 0
    assert len(worker.state.failures) == 10
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert caplog.messages[1] == "worker host-1: its beats are accepted again"


async def test_a_refusal_is_said_once_also_in_the_middle_of_an_outage(
    given: Given, between: Between, own_clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    between.mode = "answer"
    given.worker()

    for status in (500, 401, 401, 500, 403, 401, 422, 503):
        between.status = status
        await own_clock.step()

    told = [message.partition("(")[2][:3] or "500" for message in caplog.messages]
    assert told == ["500", "401", "403", "422"]


async def test_a_collector_that_fails_every_other_time_does_not_fill_the_log(
    given: Given, between: Between, own_clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    given.worker()

    for nth in range(120):
        between.mode = "answer" if nth % 2 else "pass"
        await own_clock.step()

    # About a quarter of an hour: every five minutes a line for it, and one that it is over.
    assert 4 <= len(caplog.messages) <= 8


async def test_it_alerts_after_three_failures_in_a_row_and_once_they_are_over(
    given: Given, between: Between, own_clock: SteppedClock
) -> None:
    told: list[tuple[str, State]] = []
    given.worker(
        on_failure=lambda state: told.append(("failure", state)),
        on_recovery=lambda state: told.append(("recovery", state)),
    )

    await own_clock.settle()
    for mode in ("answer", "answer", "pass", *["answer"] * 4, "pass", "pass"):
        between.mode = mode
        await own_clock.step()

    async def is_told() -> bool:
        return len(told) == 2

    await until(is_told)
    (failure, failed), (recovery, recovered) = told
    assert (failure, failed.consecutive_failures) == ("failure", 3)
    assert [each.consecutive_failures for each in failed.failures[-3:]] == [1, 2, 3]
    assert "answers 500" in (failed.last_error or "")
    assert (recovery, recovered.consecutive_failures) == ("recovery", 0)


async def test_an_alert_that_fails_or_hangs_costs_no_beat(
    given: Given, between: Between, own_clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:

    released = threading.Event()

    def hang_and_fail(_state: State) -> None:
        released.wait()
        raise RuntimeError("the pager is away")

    between.mode = "answer"
    worker = given.worker(on_failure=hang_and_fail)
    for _ in range(5):
        await own_clock.step()
    assert len(between.requests) == 6
    released.set()

    async def is_said() -> bool:
        return "the pager is away" in caplog.text

    await until(is_said)
    assert worker.state.is_beating


async def test_an_alert_that_gets_no_thread_costs_no_beat(
    given: Given, between: Between, own_clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "worker-presence-alert":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    between.mode = "answer"
    worker = given.worker(on_failure=print)
    for _ in range(5):
        await own_clock.step()

    assert len(between.requests) == 6
    assert worker.state.is_beating


async def test_an_attempt_without_an_answer_is_given_up(
    given: Given, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "ATTEMPT_SECONDS", 0.2)
    between.mode = "silence"
    worker = given.worker()

    async def is_given_up() -> bool:
        return between.given_up > 0 and bool(worker.state.failures)

    await until(is_given_up)
    assert "gives no answer in time" in (worker.state.last_error or "")


async def test_a_leave_without_an_answer_is_given_up(
    given: Given, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "ATTEMPT_SECONDS", 600)
    monkeypatch.setattr(pulse, "LEAVE_SECONDS", 0.5)
    between.mode = "silence"
    worker = given.worker()
    await beats(between, 1)

    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.to_thread(worker.leave)

    async def is_given_up() -> bool:
        return between.given_up == 2

    await until(is_given_up)
    assert [beat["status"] for beat in between.beats] == ["idle", "offline"]
    assert worker.state.failures == ()


async def test_a_worker_that_left_is_forgotten_and_its_handle_is_harmless(
    given: Given, between: Between
) -> None:
    worker = given.worker()
    await beats(between, 1)
    await asyncio.to_thread(worker.leave)

    assert registry._workers == {}
    with worker.session():
        worker.beat_now()
        worker.leave()
        state = worker.state
    assert (state.status, state.active_sessions, state.is_beating) == ("offline", 1, False)


class AsyncProbe:
    async def __call__(self) -> bool:
        return True


async def probe() -> bool:
    return True


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"collector_url": 5}, "collector_url must be a string, not int"),
        ({"api_key": b"x"}, "api_key must be a string, not bytes"),
        ({"agent_id": [1]}, "agent_id must be a string, not list"),
        ({"agent_name": {1, 2}}, "agent_name must be a string, not set"),
        ({"agent_name": None}, "agent_name must be a string, not NoneType"),
        ({"version": 1.4}, "version must be a string, not float"),
        ({"dispatch_name": 7}, "dispatch_name must be a string, not int"),
        ({"interval": True}, "interval must be a number of seconds above 0, not True"),
        ({"interval": "5"}, "interval must be a number of seconds above 0, not '5'"),
        ({"loop": 3}, "loop must be asyncio's or a trio token, not int"),
        ({"alive": 3}, "alive must be a function, not int"),
        ({"alive": probe}, "alive must be a plain function: there is no loop to run an async one"),
        ({"alive": AsyncProbe()}, "alive must be a plain function"),
    ],
)
async def test_what_is_of_no_use_is_told_once_and_does_not_beat(
    given: Given, between: Between, caplog: pytest.LogCaptureFixture, wrong: Any, told: str
) -> None:
    worker = given.worker(**wrong)
    with worker.session():
        worker.beat_now()
        state = worker.state

    assert (state.is_beating, state.active_sessions) == (False, 1)
    (line,) = caplog.messages
    assert f"does not beat: {told}" in line
    assert between.requests == []


async def test_a_wrong_id_takes_no_name_from_a_worker_that_has_it(
    given: Given, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICEGW_AGENT_ID", "host-1")
    worker = given.worker()
    await beats(between, 1)

    given.worker(agent_id=5).leave()

    assert worker.state.is_beating


async def test_clock_drift_is_what_the_collectors_clock_is_ahead(
    given: Given, between: Between, own_clock: SteppedClock
) -> None:
    between.mode, between.status = "answer", 202
    between.body = {"server_time": own_clock.now() + 7}

    worker = given.worker()
    await own_clock.settle()

    assert worker.state.clock_drift_seconds == 7
    assert worker.state.last_accepted_at is not None


@pytest.fixture(autouse=True)
def _forget_workers() -> Iterator[None]:
    yield
    registry._workers.clear()
