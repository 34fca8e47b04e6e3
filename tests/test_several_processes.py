"""Several collectors on one PostgreSQL: behind one port, or each on its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import asyncpg
import httpx2
import pytest
from sqlalchemy import make_url

from collector.cli.exits import CUT_OFF
from collector.cli.supervisor import END_AFTER_SECONDS, KILL_AFTER_SECONDS
from collector.store import cloud
from collector.store.cloud import CloudStore
from collector.store.protocol import Store
from collector.values import NO_GAP, TTL, Beat
from conformance.processes import is_alive
from tests import processes
from tests.conftest import BACKENDS
from tests.factories import at, beat, body
from tests.processes import (
    COMMAND,
    DEADLINE_SECONDS,
    Serving,
    children,
    create_key,
    run,
    wait_until,
)
from tests.test_events import Stream
from tests.test_hangs import fill

HEARTBEAT = "/v1/agents/heartbeat"
ACCEPTED = 'collector_beats_total{outcome="accepted"}'
WORKERS = 2

# Tests that are not coroutines have asynchronous fixtures too.
pytestmark = pytest.mark.usefixtures("anyio_backend")
on_a_shared_store = pytest.mark.parametrize(
    "backend", [name for name in BACKENDS if name != "selfhosted"], indirect=True
)


@pytest.fixture
def supervised(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Serving]:
    env = getattr(request, "param", {})
    with supervising(store_url, tmp_path, monkeypatch, env=env) as serving:
        yield serving


@contextmanager
def supervising(
    store_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    env: Mapping[str, str],
    log: int | None = None,
) -> Iterator[Serving]:
    """`collector serve --workers 2`; `Serving` itself adds no option to the command it runs."""
    command = tmp_path / "collector"
    command.write_text(f'#!/bin/sh\nexec {COMMAND} "$@" --workers {WORKERS}\n')
    command.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "COMMAND", command)
        serving = Serving(store_url, tmp_path, env=env, log=log)
    with serving:
        wait_until(lambda: len(children(serving.pid)) == WORKERS)
        yield serving


def client(serving: Serving, key: str) -> httpx2.AsyncClient:
    """Every request on a connection of its own: whichever process accepts it answers."""
    return httpx2.AsyncClient(
        base_url=serving.url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=DEADLINE_SECONDS,
        limits=httpx2.Limits(max_keepalive_connections=0),
        trust_env=False,
    )


def process_of(answer: httpx2.Response) -> str:
    """Request ids begin with something that every process draws for itself."""
    return str(answer.headers["x-request-id"]).partition("-")[0]


async def metric(http: httpx2.AsyncClient, name: str) -> float:
    text = (await http.get("/metrics")).text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def beat_until_everybody_answered(http: httpx2.AsyncClient, name: str) -> int:
    """Beat in handfuls, so that no process alone is idle enough to take them all; how often."""
    seen: set[str] = set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        for handful in itertools.count(1):
            ids = [f"{name}-{handful}-{n}" for n in range(10)]
            answers = await asyncio.gather(
                *(http.post(HEARTBEAT, json=body(agent_id)) for agent_id in ids)
            )
            assert {answer.status_code for answer in answers} == {202}
            seen.update(map(process_of, answers))
            if len(seen) == WORKERS:
                return handful * len(ids)
    raise AssertionError


@asynccontextmanager
async def following(http: httpx2.AsyncClient) -> AsyncIterator[Stream]:
    """A stream, from its first snapshot on."""
    async with http.stream("GET", "/events") as answer:
        assert answer.status_code == 200
        stream = Stream(answer)
        assert (await stream.next())["event"] == "snapshot"
        yield stream


async def to_its_end(stream: Stream) -> None:
    """Wait for the end that a stream should come to; one that is cut raises."""
    with suppress(EOFError):
        while True:
            await stream.next(past=("vitals",))


# Several behind one port


@on_a_shared_store
async def test_processes_behind_one_port_answer_alike_and_count_together(
    supervised: Serving, store_url: str
) -> None:
    async with client(supervised, create_key(store_url)["key"]) as http, AsyncExitStack() as stack:
        beats = await beat_until_everybody_answered(http, "worker")
        for _ in range(6):
            await stack.enter_async_context(following(http))

        rosters = [(await http.get("/v1/agents")).json()["workers"] for _ in range(6)]
        accepted = {await metric(http, ACCEPTED) for _ in range(6)}
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await metric(http, "collector_subscribers") != 6:
                await asyncio.sleep(0.05)

    assert {len(roster) for roster in rosters} == {beats}
    assert accepted == {beats}


@on_a_shared_store
@pytest.mark.parametrize("supervised", [{"COLLECTOR_METRICS_LISTEN": "127.0.0.1:0"}], indirect=True)
async def test_metrics_at_their_own_address_tell_of_all_processes(
    supervised: Serving, store_url: str
) -> None:
    named = re.search(r"Its metrics are at (http://\S+)/metrics", supervised.output)
    assert named is not None
    async with client(supervised, create_key(store_url)["key"]) as http:
        beats = await beat_until_everybody_answered(http, "worker")
        here = (await http.get("/metrics")).status_code
    async with client(supervised, "nobody's") as http:
        http.base_url = named[1]
        there = {await metric(http, ACCEPTED) for _ in range(6)}

    assert (here, there) == (404, {beats})


@on_a_shared_store
async def test_a_killed_process_is_replaced_and_what_it_counted_stays(
    supervised: Serving, store_url: str
) -> None:
    before = children(supervised.pid)
    victim = min(before)
    async with client(supervised, create_key(store_url)["key"]) as http:
        beats = await beat_until_everybody_answered(http, "before")

        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(
            wait_until, lambda: len(children(supervised.pid) - {victim}) == WORKERS
        )
        beats += await beat_until_everybody_answered(http, "after")
        counted = await metric(http, ACCEPTED)

    assert children(supervised.pid) & before == before - {victim}
    assert counted == beats


@on_a_shared_store
def test_processes_end_when_their_supervisor_is_killed(supervised: Serving) -> None:
    left_alone = children(supervised.pid)

    supervised.kill()

    wait_until(lambda: not any(map(is_alive, left_alone)))


@on_a_shared_store
async def test_a_stop_ends_open_streams_cleanly_and_exits_0(
    supervised: Serving, store_url: str
) -> None:
    everybody = children(supervised.pid)
    async with client(supervised, create_key(store_url)["key"]) as http:
        await beat_until_everybody_answered(http, "worker")
        async with following(http) as one, following(http) as two, following(http) as three:
            stopping = asyncio.create_task(asyncio.to_thread(supervised.stop))
            await asyncio.gather(*map(to_its_end, (one, two, three)))
            code = await stopping

    assert code == 0
    assert not any(map(is_alive, everybody))


@on_a_shared_store
@pytest.mark.parametrize("supervised", [{"COLLECTOR_SHUTDOWN_SECONDS": "1"}], indirect=True)
def test_a_stop_ends_a_process_that_stands_still(supervised: Serving) -> None:
    everybody = children(supervised.pid)
    os.kill(min(everybody), signal.SIGSTOP)

    supervised.stop(within=1 + KILL_AFTER_SECONDS + END_AFTER_SECONDS + 2)

    assert not any(map(is_alive, everybody))


@on_a_shared_store
def test_a_stop_ends_in_time_although_the_supervisor_hangs(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    env = {"COLLECTOR_SHUTDOWN_SECONDS": "1"}
    with supervising(store_url, tmp_path, monkeypatch, env=env, log=writing) as serving:
        first, second = sorted(children(serving.pid))
        fill(writing)
        # Its end is logged, and so the supervisor's event loop hangs: no other one is started.
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{first}").exists())

        code = serving.stop(within=1 + KILL_AFTER_SECONDS + END_AFTER_SECONDS + 2)
    os.close(reading)
    os.close(writing)
    wait_until(lambda: not is_alive(second))

    assert code == CUT_OFF


def test_several_processes_on_the_embedded_store_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/embedded.db"

    refused = run("serve", "--port", "0", "--workers", "2", env={"COLLECTOR_STORE_URL": url})

    assert "--workers needs PostgreSQL" in refused.stderr
    assert (refused.returncode, refused.stdout) == (4, "")


# Two on their own


@asynccontextmanager
async def two_collectors(
    store_url: str, tmp_path: Path, key: str
) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient]]:
    with Serving(store_url, tmp_path) as first, Serving(store_url, tmp_path) as second:
        async with client(first, key) as one, client(second, key) as other:
            yield one, other


@on_a_shared_store
async def test_a_change_through_one_collector_wakes_the_followers_of_another(
    store_url: str, tmp_path: Path
) -> None:
    key = create_key(store_url)["key"]
    names = [f"worker-{n}" for n in range(10)]
    async with two_collectors(store_url, tmp_path, key) as (one, other), following(other) as stream:
        told, started = [], time.monotonic()
        for name in names:
            await one.post(HEARTBEAT, json=body(name))
            told.append((await stream.next(past=("vitals",)))["data"]["worker"]["agent_id"])
        took = time.monotonic() - started

    assert told == names
    # Each is sent when the last one came: by the one-second poll alone, ten take nine seconds.
    assert took < 5


@on_a_shared_store
async def test_a_key_revoked_by_the_command_line_is_refused_everywhere_within_2_seconds(
    store_url: str, tmp_path: Path
) -> None:
    created = create_key(store_url)
    async with (
        two_collectors(store_url, tmp_path, created["key"]) as (one, other),
        following(one) as first,
        following(other) as second,
    ):
        revoke = ("keys", "revoke", created["id"])
        revoked = await asyncio.to_thread(run, *revoke, env={"COLLECTOR_STORE_URL": store_url})
        async with asyncio.timeout(2):
            await asyncio.gather(to_its_end(first), to_its_end(second))
        refused = [(await http.get("/v1/agents")).status_code for http in (one, other)]

    assert revoked.returncode == 0, revoked.stderr
    assert refused == [401, 401]


# One store, many writers


ROUNDS = 300
TENANTS = [f"tenant-{n:02}" for n in range(50)]
AGENTS = [f"worker-{n}" for n in range(4)]


@asynccontextmanager
async def stores(url: str, count: int) -> AsyncIterator[list[Store]]:
    made = [CloudStore(url, pool_size=1) for _ in range(count)]
    try:
        yield list(made)
    finally:
        for each in made:
            await each.close()


def some_beats(draw: random.Random, stamp: int) -> list[Beat]:
    """In key order, as every writer sends them; many of them change something."""
    keys = sorted(draw.sample([(t, a) for t in TENANTS for a in AGENTS], 60))
    status = draw.choices(("idle", "busy", "offline"), (4, 4, 1), k=len(keys))
    return [
        beat(agent, tenant_id=tenant, status=each, last_seen=stamp)
        for (tenant, agent), each in zip(keys, status, strict=True)
    ]


class Rounds:
    """Time goes on by a minute a round, so that whoever missed one is silent."""

    def __init__(self) -> None:
        self.done = 0

    @property
    def now(self) -> int:
        return at(self.done * 60)

    async def commit(self, store: Store, seed: int) -> None:
        draw = random.Random(seed)
        while self.done < ROUNDS:
            now = self.now
            await store.commit(some_beats(draw, now), now=now, gone=NO_GAP)
            self.done += 1

    async def sweep(self, store: Store) -> None:
        while self.done < ROUNDS:
            before = self.now - TTL
            silent = await store.silent(before=before, limit=1000)
            await store.announce_lost(silent, before=before)

    async def remove(self, store: Store, seed: int) -> None:
        draw = random.Random(seed)
        while self.done < ROUNDS:
            await store.remove(draw.choice(TENANTS), [draw.choice(AGENTS)], now=self.now)
            await asyncio.sleep(0)


@on_a_shared_store
async def test_writers_sweepers_and_a_remover_never_deadlock(store_url: str) -> None:
    """Any deadlock is a StoreUnavailable, and fails the group."""
    rounds = Rounds()
    async with stores(store_url, 7) as made, asyncio.TaskGroup() as group:
        for seed, store in enumerate(made[:4]):
            group.create_task(rounds.commit(store, seed))
        for store in made[4:6]:
            group.create_task(rounds.sweep(store))
        group.create_task(rounds.remove(made[6], seed=7))

    async with stores(store_url, 1) as (store,):
        logs = [await store.events(tenant, after=0, limit=100_000) for tenant in TENANTS]
    for log in logs:
        assert [line.n for line in log] == list(range(1, len(log) + 1))
    types = {line.type for log in logs for line in log}
    assert types >= {"online", "changed", "offline", "left", "removed"}


@asynccontextmanager
async def connection(store_url: str) -> AsyncIterator[asyncpg.Connection]:
    plain = make_url(store_url).set(drivername="postgresql")
    opened = await asyncpg.connect(plain.render_as_string(hide_password=False))
    try:
        await opened.execute(cloud.SET_UP)
        yield opened
    finally:
        await opened.close()


async def rows_written(server: asyncpg.Connection, *beats: Beat) -> dict[str, int]:
    """Commit these by the very statement of the store; how many rows of each table that wrote."""
    async with server.transaction():
        before = await written_so_far(server)
        await server.fetch(cloud.COMMIT, beats, NO_GAP, beats[0].last_seen)
        return dict(await written_so_far(server) - before)


async def written_so_far(server: asyncpg.Connection) -> Counter[str]:
    """By this connection, as far as it has not handed it in to the server's statistics.

    What a part of a table wrote, the table did.
    """
    rows = await server.fetch(
        "SELECT regexp_replace(relname, '_[0-9]$', ''),"
        " sum(n_tup_ins + n_tup_upd + n_tup_del)::int FROM pg_stat_xact_user_tables GROUP BY 1"
    )
    return Counter(dict(rows))


@on_a_shared_store
async def test_a_beat_that_changes_nothing_writes_nothing_but_its_row(store_url: str) -> None:
    async with connection(store_url) as server:
        first = await rows_written(server, beat())
        again = await rows_written(server, beat(seconds=15, cpu_pct=50.0, ts=at(15)))
        left = await rows_written(server, beat(seconds=30, status="offline"))

    assert first == {"workers": 1, "events": 1, "event_counters": 1}
    assert again == {"workers": 1}
    assert left == {"workers": 1, "events": 1, "event_counters": 1, "spells": 1}
