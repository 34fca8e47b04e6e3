"""The metrics cost little, however many ask, and can be closed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.exposition import generate_latest

from collector import metrics
from collector.store.protocol import Store
from tests.fleet import Fleet, TestClock
from tests.processes import Serving, create_key
from tests.test_doors import check_problem

KEY = "a-key-of-the-metrics"

# Tests that are not coroutines have asynchronous fixtures too.
pytestmark = pytest.mark.usefixtures("anyio_backend")


@pytest.fixture
async def closed(store: Store, clock: TestClock) -> AsyncIterator[Fleet]:
    async with Fleet.over(store, clock, metrics_key=KEY) as running:
        yield running


async def test_however_many_ask_within_a_moment_it_is_made_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    honest = generate_latest

    def counted(registry: Any) -> bytes:
        made.append(registry)
        return honest(registry)

    monkeypatch.setattr(metrics, "generate_latest", counted)
    monkeypatch.setattr(metrics, "FRESH_SECONDS", 3600)
    answers = await asyncio.gather(*(fleet.http.get("/metrics") for _ in range(50)))

    assert len(made) == 1
    assert len({answer.content for answer in answers}) == 1
    assert {answer.status_code for answer in answers} == {200}


async def test_who_asks_later_hears_newer_figures(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (await fleet.http.get("/metrics")).text
    await fleet.beat()
    monkeypatch.setattr(metrics, "FRESH_SECONDS", 0)

    after = (await fleet.http.get("/metrics")).text

    accepted = 'collector_beats_total{outcome="accepted"} 1.0'
    assert (accepted in before, accepted in after) == (False, True)


async def test_metrics_with_a_key_are_for_who_has_it(closed: Fleet) -> None:
    answer = await closed.http.get("/metrics", headers={"Authorization": f"Bearer {KEY}"})

    assert answer.status_code == 200
    assert "collector_beats_total" in answer.text


@pytest.mark.parametrize("presented", [None, "a-key-of-the-metric", KEY + "s", "ü" * 16])
async def test_metrics_with_a_key_are_for_nobody_else(closed: Fleet, presented: str | None) -> None:
    headers = {} if presented is None else {b"Authorization": bearer(presented)}

    check_problem(await closed.http.get("/metrics", headers=headers), 401, "unauthenticated")


def bearer(presented: str) -> bytes:
    return f"Bearer {presented}".encode("latin-1")


async def test_a_tenants_key_does_not_open_the_metrics(closed: Fleet) -> None:
    answer = await closed.get("/metrics")

    check_problem(answer, 401, "unauthenticated")


def metrics_at(serving: Serving) -> str:
    named = re.search(r"Its metrics are at (http://\S+)/metrics\.", serving.output)
    assert named, serving.output
    return named[1]


def test_metrics_at_their_own_address_are_there_alone(store_url: str, tmp_path: Path) -> None:
    key = create_key(store_url)["key"]
    with Serving(store_url, tmp_path, env={"COLLECTOR_METRICS_LISTEN": "127.0.0.1:0"}) as serving:
        with httpx2.Client(trust_env=False, headers={"Authorization": f"Bearer {key}"}) as http:
            there = http.get(f"{metrics_at(serving)}/metrics")
            here = http.get(f"{serving.url}/metrics")
            beaten = http.post(f"{metrics_at(serving)}/v1/agents/heartbeat", json={})
            ready = http.get(f"{serving.url}/readyz")
        code = serving.stop()

    assert (there.status_code, ready.status_code, code) == (200, 200, 0)
    assert "collector_beats_total" in there.text
    check_problem(here, 404, "not_found")
    check_problem(beaten, 404, "not_found")
