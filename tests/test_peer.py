"""The open-source peer's own producer, unmodified, beats into this collector (`make peer`)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from conformance import wheel
from conformance.launcher import launched
from conformance.target import Target
from tests.fleet import client_of
from tests.processes import DEADLINE_SECONDS, Serving, create_key, environment, wait_until

# Installing the peer needs the network: other runs don't even collect this.
__test__ = os.environ.get("PEER") == "1"

PRODUCER = Path(__file__).with_name("peer_producer.py")

DESCRIPTION = {
    "agent_name": "peer-reception",
    "project": "peer-project",
    "region": "eu-test-1",
    "version": "9.8.7",
    "dispatch_name": "peer-dispatch",
}

pytestmark = pytest.mark.usefixtures("anyio_backend")


@pytest.fixture(scope="session")
def peer_python() -> Path:
    """The Python of an environment that has the peer's wheel; made once, then kept."""
    return wheel.producer()


def start_producer(
    python: Path, serving: Serving, key: str, home: Path, **description: str
) -> subprocess.Popen[bytes]:
    """It ends with the block that it is used in: its standard input closes there."""
    variables = {
        "HOME": str(home),
        "VOICEGW_COLLECTOR_URL": serving.url,
        "VOICEGW_API_KEY": key,
        "VOICEGW_AGENT_ID": "peer-worker-1",
    }
    return subprocess.Popen(
        [python, PRODUCER, json.dumps(DESCRIPTION | description)],
        env=environment(variables),
        cwd=home,
        stdin=subprocess.PIPE,
    )


def roster(serving: Serving, key: str) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx2.get(f"{serving.url}/v1/agents", headers=headers, trust_env=False)
    workers: list[dict[str, Any]] = answer.raise_for_status().json()["workers"]
    return workers


def test_the_peers_worker_is_on_the_roster_with_all_that_it_says_of_itself(
    store_url: str, tmp_path: Path, peer_python: Path
) -> None:
    key, before = create_key(store_url)["key"], time.time()

    with (
        Serving(store_url, tmp_path) as serving,
        start_producer(peer_python, serving, key, tmp_path),
    ):
        wait_until(lambda: roster(serving, key) != [])
        (worker,) = roster(serving, key)

    said = {"agent_id": "peer-worker-1", "host": socket.gethostname(), **DESCRIPTION}
    assert {name: worker[name] for name in said} == said
    assert (worker["status"], worker["reason"], worker["active_sessions"]) == ("idle", "alive", 0)
    assert before < worker["started_at"] < worker["ts"] < time.time()
    rss, total = worker["memory_rss_bytes"], worker["memory_total_bytes"]
    assert 0 < rss < total
    assert worker["memory_pct"] == round(rss / total * 100, 1)


def test_the_peers_worker_belongs_to_its_keys_tenant_and_not_to_the_one_it_names(
    store_url: str, tmp_path: Path, peer_python: Path
) -> None:
    key, other = create_key(store_url)["key"], create_key(store_url, "other")["key"]

    with (
        Serving(store_url, tmp_path) as serving,
        start_producer(peer_python, serving, key, tmp_path, tenant_id="other"),
    ):
        wait_until(lambda: roster(serving, key) != [])

        assert roster(serving, other) == []


def test_a_killed_peer_stays_on_the_roster_with_its_last_beat(
    store_url: str, tmp_path: Path, peer_python: Path
) -> None:
    key = create_key(store_url)["key"]

    with (
        Serving(store_url, tmp_path) as serving,
        start_producer(peer_python, serving, key, tmp_path) as producer,
    ):
        wait_until(lambda: roster(serving, key) != [])
        producer.kill()
        code = producer.wait()
        (worker,) = roster(serving, key)

    assert code == -signal.SIGKILL
    assert (worker["status"], worker["reason"]) == ("idle", "alive")


OURS = """
import json, sys
from contract import register_worker
register_worker(**json.loads(sys.argv[1]))
sys.stdin.read()
"""
# Each process's own: of these only the kind can agree.
OWN = ("agent_id", "ts", "started_at", "memory_rss_bytes", "memory_pct")


async def beaten_by(
    target: Target, command: list[str], agent_id: str, home: Path
) -> dict[str, Any]:
    """The worker that this producer has put on the roster, while it lives."""
    variables = {
        "HOME": str(home),
        "VOICEGW_COLLECTOR_URL": target.url,
        "VOICEGW_API_KEY": target.keys.a,
        "VOICEGW_AGENT_ID": agent_id,
    }
    producer = await asyncio.create_subprocess_exec(
        *(*command, json.dumps(DESCRIPTION)),
        env=environment(variables),
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
    )
    headers = {"Authorization": f"Bearer {target.keys.a}"}
    try:
        async with client_of(target.url) as http, asyncio.timeout(DEADLINE_SECONDS):
            while (answer := await http.get(f"/v1/agents/{agent_id}", headers=headers)).is_error:
                await asyncio.sleep(0.05)
            worker: dict[str, Any] = answer.json()
            return worker
    finally:
        producer.kill()
        await producer.communicate()


async def test_our_producer_and_the_peers_make_the_same_rosters_on_both_stores(
    tmp_path: Path, peer_python: Path
) -> None:
    ours = [sys.executable, "-c", OURS]
    peers = [str(peer_python), str(PRODUCER)]
    seen = []

    for kind in ("selfhosted", "cloud"):
        # Its clock stands still: the collector's own stamps agree to the microsecond.
        async with launched(kind) as target:
            seen.append(await beaten_by(target, ours, "ours", tmp_path))
            seen.append(await beaten_by(target, peers, "peers", tmp_path))

    first, *others = [{name: worker[name] for name in worker if name not in OWN} for worker in seen]
    assert others == [first] * 3
    assert first["cpu_pct"] is None
    for name in OWN[1:]:
        assert {type(worker[name]) for worker in seen} == {type(seen[0][name])}
