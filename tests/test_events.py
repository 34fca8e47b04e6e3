"""The feed over HTTP: snapshot, resume, order, isolation, ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from collector import channels, keys
from collector.api import events as door
from collector.batches import Filter, Snapshot
from collector.errors import Unauthenticated
from collector.events import Subscription
from collector.values import SECOND, Beat, RosterQuery, Worker
from contract import Worker as WireWorker
from tests.factories import START, at, beat
from tests.fleet import Fleet


class Stream:
    """One open event stream, frame by frame."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._lines = answer.aiter_lines()

    async def next(self, *, past: tuple[str, ...] = ()) -> dict[str, Any]:
        """The next frame's fields, its data parsed; comments and `retry` are passed over."""
        fields: dict[str, Any] = {}
        async with asyncio.timeout(10):
            async for line in self._lines:
                if not line and "data" in fields:
                    if fields["event"] not in past:
                        return fields
                    fields = {}
                name, _, value = line.partition(": ")
                if name in ("event", "id"):
                    fields[name] = value
                if name == "data":
                    fields["data"] = json.loads(value)
        raise EOFError

    async def types(self, count: int) -> list[str]:
        return [(await self.next())["event"] for _ in range(count)]


@asynccontextmanager
async def following(
    fleet: Fleet, *, tenant: str = "acme", last: str | None = None, **query: Any
) -> AsyncIterator[Stream]:
    headers = await fleet.headers(tenant) | ({"Last-Event-ID": last} if last else {})
    async with fleet.http.stream("GET", "/events", headers=headers, params=query) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)


async def test_a_stream_begins_with_a_snapshot_and_goes_on_with_changes(fleet: Fleet) -> None:
    await fleet.beat("a")
    async with following(fleet) as stream:
        snapshot = await stream.next()
        await fleet.beat("a", status="busy")
        change = await stream.next()

    assert snapshot["event"] == "snapshot"
    assert [w["agent_id"] for w in snapshot["data"]["workers"]] == ["a"]
    assert snapshot["data"]["more"] is False
    assert snapshot["data"]["at"] == START / SECOND
    assert change["event"] == change["data"]["type"] == "worker.changed"
    assert change["id"] == change["data"]["cursor"]
    assert WireWorker.model_validate(change["data"]["worker"], extra="forbid", strict=True)
    assert change["data"]["worker"]["status"] == "busy"


async def test_every_kind_of_event_is_told_in_order(fleet: Fleet) -> None:
    parts = fleet.app.state.parts
    async with following(fleet) as stream:
        await stream.next()
        await fleet.beat("a", started_at=200)
        await fleet.beat("a", status="busy", started_at=200)
        await fleet.beat("a", status="busy", started_at=100)
        await fleet.beat("a", status="offline")
        await fleet.beat("a")
        for _ in range(10):
            fleet.clock.move(5)
            await parts.listener.listen()
        await parts.sweep.tick()
        await fleet.store.remove("acme", ["a"], now=fleet.clock.now())

        told = [await stream.next() for _ in range(7)]

    assert [frame["event"] for frame in told] == [
        f"worker.{kind}"
        for kind in ("online", "changed", "conflict", "left", "online", "offline", "removed")
    ]
    left, lost = told[3]["data"], told[5]["data"]
    assert (left["worker"]["status"], left["worker"]["reason"]) == ("offline", "left")
    assert (lost["worker"]["status"], lost["worker"]["reason"]) == ("offline", "lost")
    assert (lost["at"], lost["reason"]) == (at(45) / SECOND, "lost")


async def test_a_snapshot_says_what_the_log_will_go_on_from(fleet: Fleet) -> None:
    """In time, but committed after the snapshot: such a beat logs nothing that would correct it."""
    parts = fleet.app.state.parts
    await fleet.beat("a")
    fleet.clock.move(44.9)
    in_time = fleet.clock.now()
    fleet.clock.move(0.2)

    async with following(fleet) as stream:
        (shown,) = (await stream.next())["data"]["workers"]
        (known,) = await fleet.store.roster("acme", RosterQuery(), now=fleet.clock.now())
        late = beat(**{**_as_sent(known), "last_seen": in_time})
        await fleet.store.commit([late], now=fleet.clock.now(), gone=parts.listener.gone())
        await fleet.beat("b")
        next_frame = await stream.next()

    assert (shown["status"], shown["reason"]) == ("idle", "alive")
    assert next_frame["data"]["worker"]["agent_id"] == "b"
    assert {w["status"] for w in await fleet.roster()} == {"idle"}


def _as_sent(worker: Worker) -> dict[str, Any]:
    return {name: value for name, value in worker._asdict().items() if name in Beat._fields}


async def test_a_beat_that_changes_nothing_sends_nothing(fleet: Fleet) -> None:
    await fleet.beat("a")
    async with following(fleet) as stream:
        await stream.next()
        await fleet.beat("a", cpu_pct=50.0)
        await fleet.beat("b")

        assert (await stream.next())["data"]["worker"]["agent_id"] == "b"


async def test_a_large_snapshot_comes_in_chunks_and_only_the_last_can_be_resumed_from(
    fleet: Fleet,
) -> None:
    await fleet.key()
    await asyncio.gather(*(fleet.beat(f"w{n:04}") for n in range(501)))

    async with following(fleet) as stream:
        first, last = await stream.next(), await stream.next()

    assert (len(first["data"]["workers"]), len(last["data"]["workers"])) == (500, 1)
    assert (first["data"]["more"], last["data"]["more"]) == (True, False)
    assert "id" not in first
    assert last["id"] == last["data"]["cursor"]


@pytest.mark.parametrize("by", ["header", "query"])
async def test_a_resumed_stream_has_no_snapshot_no_gap_and_no_duplicate(
    fleet: Fleet, by: str
) -> None:
    async with following(fleet) as stream:
        await stream.next()
        await fleet.beat("a")
        cursor = (await stream.next())["id"]
    for n in range(3):
        await fleet.beat(f"missed-{n}")

    query = {"after": cursor} if by == "query" else {}
    async with following(fleet, last=cursor if by == "header" else None, **query) as stream:
        missed = [(await stream.next())["data"]["worker"]["agent_id"] for _ in range(3)]
        await fleet.beat("live")
        live = await stream.next()

    assert missed == ["missed-0", "missed-1", "missed-2"]
    assert live["data"]["worker"]["agent_id"] == "live"


async def test_a_resume_longer_than_a_page_is_whole(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "PAGE", 3)
    async with following(fleet) as stream:
        cursor = (await stream.next())["id"]
    for n in range(10):
        await fleet.beat(f"w{n}")

    async with following(fleet, last=cursor) as stream:
        told = [(await stream.next())["data"]["worker"]["agent_id"] for _ in range(10)]

    assert told == [f"w{n}" for n in range(10)]


@pytest.mark.parametrize("cursor", ["other.1", "nonsense", "test.999999", "test.-1", "test.²", "."])
async def test_a_cursor_of_another_log_or_past_its_head_gets_a_snapshot(
    fleet: Fleet, cursor: str
) -> None:
    await fleet.beat("a")

    async with following(fleet, after=cursor) as stream:
        assert (await stream.next())["event"] == "snapshot"


@pytest.mark.parametrize("back", [0, 1])
async def test_a_cursor_of_a_tenant_that_was_removed_gets_a_snapshot_of_the_new_one(
    fleet: Fleet, back: int
) -> None:
    for n in range(3):
        await fleet.beat(f"old-{n}")
    epoch, _, _ = await fleet.store.position("acme")
    await fleet.store.remove_tenant("acme", now=fleet.clock.now())
    await fleet.store.commit([beat(f"new-{n}") for n in range(5)], now=at(0), gone=at(0))
    _, key = await keys.create(fleet.store, "acme", ["read"], now=fleet.clock.now())

    answer = await fleet.http.get(
        "/v1/events",
        params={"after": f"{epoch}.{3 - back}"},
        headers={"Authorization": f"Bearer {key}"},
    )

    (first,) = answer.json()["events"]
    assert first["type"] == "snapshot"
    assert len(first["workers"]) == 5


async def test_a_pruned_cursor_gets_a_snapshot(fleet: Fleet) -> None:
    async with following(fleet) as stream:
        cursor = (await stream.next())["id"]
    for n in range(3):
        await fleet.beat(f"w{n}")
    await fleet.store.prune_events(before=0, keep=1, limit=100)

    async with following(fleet, last=cursor) as stream:
        snapshot = await stream.next()

    assert snapshot["event"] == "snapshot"
    assert len(snapshot["data"]["workers"]) == 3


async def test_a_follower_that_falls_behind_gets_a_fresh_snapshot(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "RING", 4)
    parts = fleet.app.state.parts
    principal = await parts.keyring.identify(await fleet.key())
    subscription = await parts.feed.subscribe(principal, None, Filter())
    batches = subscription.batches()
    assert isinstance(await anext(batches), Snapshot)

    for n in range(10):
        await fleet.beat(f"w{n}")
    await parts.feed.poll()
    while parts.feed._channels["acme"].head < 10:
        await asyncio.sleep(0)

    again = await anext(batches)
    assert isinstance(again, Snapshot)
    assert again.document.facts.workers == 10
    await batches.aclose()
    subscription.close()
    assert parts.feed.followers == 0


async def test_followers_who_stand_at_the_same_place_share_one_batch(fleet: Fleet) -> None:
    parts = fleet.app.state.parts
    principal = await parts.keyring.identify(await fleet.key())
    subscriptions = [await parts.feed.subscribe(principal, None, Filter()) for _ in range(2)]
    first, second = (subscription.batches() for subscription in subscriptions)
    await anext(first)
    await anext(second)

    await fleet.beat("a")

    assert await anext(first) is await anext(second)
    for subscription in subscriptions:
        subscription.close()


async def test_the_poll_leaves_logs_alone_that_are_about_to_be_read(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = fleet.app.state.parts
    async with following(fleet) as stream, following(fleet, tenant="blue") as other:
        await stream.next()
        await other.next()
        read: list[set[str]] = []

        async def note(tenants: set[str]) -> None:
            read.append(tenants)

        monkeypatch.setattr(parts.feed, "_read_on", note)
        parts.feed.wake(["acme"])
        await parts.feed.poll()

    assert read[0] == {"blue"}


async def test_filters_keep_other_workers_out(fleet: Fleet) -> None:
    await fleet.beat("a", project="p")
    await fleet.beat("b", project="q")

    async with following(fleet, project="p") as stream:
        snapshot = await stream.next()
        await fleet.beat("b", project="q", status="busy")
        await fleet.beat("a", project="p", status="busy")
        change = await stream.next()

    assert [w["agent_id"] for w in snapshot["data"]["workers"]] == ["a"]
    assert change["data"]["worker"]["agent_id"] == "a"


async def test_vitals_say_who_beat_and_have_no_id(fleet: Fleet) -> None:
    await fleet.beat("a")
    await fleet.beat("quiet")
    async with following(fleet) as stream:
        await stream.next()
        fleet.clock.move(5)
        await fleet.beat("a", cpu_pct=12.5, memory_rss_bytes=1, memory_total_bytes=2)
        channel = fleet.app.state.parts.feed._channels["acme"]
        channel._vitals_at = fleet.clock.now()
        await channel.take_vitals()
        vitals = await stream.next()

    assert vitals["event"] == "vitals"
    assert "id" not in vitals
    assert vitals["data"]["workers"] == [
        {
            "agent_id": "a",
            "last_seen": at(5) / SECOND,
            "memory_rss_bytes": 1,
            "memory_total_bytes": 2,
            "memory_pct": 50.0,
            "cpu_pct": 12.5,
        }
    ]


async def test_vitals_of_other_workers_are_filtered_out(fleet: Fleet) -> None:
    await fleet.beat("a", project="p")
    await fleet.beat("b", project="q")
    async with following(fleet, project="p") as stream:
        await stream.next()
        await fleet.app.state.parts.feed._channels["acme"].take_vitals()
        vitals = await stream.next()

    assert [worker["agent_id"] for worker in vitals["data"]["workers"]] == ["a"]


async def test_another_tenants_changes_never_reach_a_stream(fleet: Fleet) -> None:
    await fleet.beat("theirs", tenant="blue")
    async with following(fleet) as stream:
        assert (await stream.next())["data"]["workers"] == []
        await fleet.beat("theirs", tenant="blue", status="busy")
        await fleet.beat("mine")

        assert (await stream.next())["data"]["worker"]["agent_id"] == "mine"


async def test_another_tenants_cursor_shows_nothing_of_it(fleet: Fleet) -> None:
    async with following(fleet, tenant="blue") as stream:
        cursor = (await stream.next())["id"]
    await fleet.beat("theirs", tenant="blue")
    await fleet.beat("mine")

    async with following(fleet, last=cursor) as stream:
        assert (await stream.next())["data"]["worker"]["agent_id"] == "mine"


async def test_a_revoked_keys_streams_end_and_the_others_go_on(fleet: Fleet) -> None:
    key = await fleet.key("acme", ["read"])
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        fleet.http.stream("GET", "/events", headers=headers) as answer,
        following(fleet) as other,
    ):
        revoked = Stream(answer)
        await revoked.next()
        await other.next()

        await fleet.store.revoke_key("acme", key[3:11], now=0)
        await fleet.app.state.parts.keyring.refresh()

        with pytest.raises(EOFError):
            await revoked.next()
        await fleet.beat("a")
        assert (await other.next())["event"] == "worker.online"


@pytest.mark.parametrize("overlap_seconds", [0, 30])
async def test_a_rotated_keys_stream_ends_when_the_key_does(
    fleet: Fleet, overlap_seconds: int
) -> None:
    parts, key = fleet.app.state.parts, await fleet.key("acme", ["read"])
    principal = await parts.keyring.identify(key)
    subscription = await parts.feed.subscribe(principal, None, Filter())
    path, headers = f"/v1/keys/{key[3:11]}/rotate", await fleet.headers()
    await fleet.http.post(path, headers=headers, json={"overlap_seconds": overlap_seconds})

    await parts.keyring.refresh()
    fleet.clock.move(max(0, overlap_seconds - 1))
    await parts.feed.end_expired()
    goes_on = not subscription.follower.has_ended
    fleet.clock.move(1)
    await parts.feed.end_expired()

    assert goes_on == (overlap_seconds > 0)
    assert subscription.follower.has_ended
    with pytest.raises(Unauthenticated):
        await parts.feed.subscribe(principal, None, Filter())
    subscription.close()


async def test_an_expired_keys_stream_ends_though_the_key_was_forgotten_meanwhile(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.keys.CACHED_KEYS", 1)
    ring, now = fleet.app.state.parts.keyring, fleet.clock.now()
    _, key = await keys.create(fleet.store, "acme", ["read"], now=now, expires_at=now + SECOND)
    headers = {"Authorization": f"Bearer {key}"}
    async with fleet.http.stream("GET", "/events", headers=headers) as answer:
        stream = Stream(answer)
        await stream.next()
        await ring.identify(await fleet.key("blue"))

        fleet.clock.move(1)

        with pytest.raises(EOFError):
            await stream.next(past=("vitals",))


async def test_a_stopping_collector_ends_its_streams_cleanly(fleet: Fleet) -> None:
    async with following(fleet) as stream:
        await stream.next()

        fleet.app.state.parts.feed.stop()

        with pytest.raises(EOFError):
            await stream.next()
    refused = await fleet.get("/events")
    assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")


async def test_streams_of_one_tenant_are_bounded(fleet: Fleet) -> None:
    fleet.app.state.parts.feed._limit = 1
    async with following(fleet) as stream:
        await stream.next()

        refused = await fleet.get("/events")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_subscribers")
        assert refused.headers["retry-after"]
        async with following(fleet, tenant="blue") as other:
            assert (await other.next())["event"] == "snapshot"


async def test_twenty_at_once_do_not_slip_past_the_bound(fleet: Fleet) -> None:
    parts = fleet.app.state.parts
    parts.feed._limit = 5
    principal = await parts.keyring.identify(await fleet.key())

    attempts = await asyncio.gather(
        *(parts.feed.subscribe(principal, None, Filter()) for _ in range(20)),
        return_exceptions=True,
    )

    assert sum(isinstance(attempt, Subscription) for attempt in attempts) == 5
    assert parts.feed.followers == 5


async def test_a_key_revoked_while_its_stream_begins_gets_none(fleet: Fleet) -> None:
    parts = fleet.app.state.parts
    key = await fleet.key()
    principal = await parts.keyring.identify(key)
    await fleet.store.revoke_key("acme", principal.key_id, now=0)
    await parts.keyring.refresh()

    with pytest.raises(Unauthenticated):
        await parts.feed.subscribe(principal, None, Filter())


async def test_a_stream_that_begins_as_the_collector_stops_ends_at_once(fleet: Fleet) -> None:
    parts = fleet.app.state.parts
    principal = await parts.keyring.identify(await fleet.key())
    subscription = await parts.feed.subscribe(principal, None, Filter())

    parts.feed.stop()

    async with asyncio.timeout(10):
        assert [batch async for batch in subscription.batches()] == []


@pytest.mark.parametrize("path", ["/events", "/openorca/events"])
async def test_asking_for_a_streams_head_follows_nothing(fleet: Fleet, path: str) -> None:
    answer = await fleet.http.head(path, headers=await fleet.headers())

    assert answer.status_code == 200
    assert fleet.app.state.parts.feed.followers == 0


async def test_a_client_that_goes_before_the_first_frame_leaves_nobody_behind(
    fleet: Fleet,
) -> None:
    parts = fleet.app.state.parts
    principal = await parts.keyring.identify(await fleet.key())
    subscription = await parts.feed.subscribe(principal, None, Filter())

    async def gone(_message: Any) -> None:
        raise OSError("gone")

    async def wait() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(OSError, match="gone"):
        await door.Stream(door.nothing(), parts.reads.turns, subscription)(
            {"type": "http", "method": "GET"}, wait, gone
        )

    assert parts.feed.followers == 0


async def test_a_poll_beside_a_follower_that_lags_still_reads_what_is_there(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = fleet.app.state.parts
    async with following(fleet) as stream:
        cursor = (await stream.next())["id"]
        monkeypatch.setattr(parts.feed, "_read_on", lambda _tenants: asyncio.sleep(0))
        await fleet.store.commit([beat("a")], now=at(0), gone=parts.listener.gone())

        answer = (await fleet.get("/v1/events", after=cursor)).json()

    assert [event["worker"]["agent_id"] for event in answer["events"]] == ["a"]


async def test_a_follower_that_is_gone_is_noticed(fleet: Fleet) -> None:
    async with following(fleet) as stream:
        await stream.next()
        assert fleet.app.state.parts.feed.followers == 1

    async with asyncio.timeout(10):
        while fleet.app.state.parts.feed.followers:
            await asyncio.sleep(0.01)


async def test_a_long_poll_gives_a_snapshot_and_then_what_came_after(fleet: Fleet) -> None:
    await fleet.beat("a")
    first = (await fleet.get("/v1/events")).json()
    waiting = asyncio.create_task(fleet.get("/v1/events", after=first["cursor"], wait=10))
    await fleet.beat("b")

    second = (await waiting).json()

    assert [event["type"] for event in first["events"]] == ["snapshot"]
    assert [event["worker"]["agent_id"] for event in second["events"]] == ["b"]
    assert second["cursor"] == second["events"][-1]["cursor"]


async def test_a_long_poll_reads_what_is_there_however_long_that_takes(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = (await fleet.get("/v1/events")).json()["cursor"]
    await fleet.beat("a")
    honest = type(fleet.store).events

    async def slow(*args: Any, **kwargs: Any) -> Any:
        # Timers fire in their order: whatever the poll has set for its own end has fired by then.
        loop, passed = asyncio.get_running_loop(), asyncio.Event()
        loop.call_at(loop.time(), passed.set)
        await passed.wait()
        return await honest(*args, **kwargs)

    monkeypatch.setattr(type(fleet.store), "events", slow)
    answer = (await fleet.get("/v1/events", after=cursor)).json()

    assert [event["worker"]["agent_id"] for event in answer["events"]] == ["a"]


async def test_a_long_poll_that_is_cut_short_keeps_its_cursor(fleet: Fleet) -> None:
    cursor = (await fleet.get("/v1/events")).json()["cursor"]
    waiting = asyncio.create_task(fleet.get("/v1/events", after=cursor, wait=30))
    while not fleet.app.state.parts.feed.followers:
        await asyncio.sleep(0.01)

    fleet.app.state.parts.feed.stop()

    assert (await waiting).json() == {"events": [], "cursor": cursor}


async def test_a_long_poll_without_news_keeps_its_cursor(fleet: Fleet) -> None:
    cursor = (await fleet.get("/v1/events")).json()["cursor"]

    answer = (await fleet.get("/v1/events", after=cursor)).json()

    assert answer == {"events": [], "cursor": cursor}


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/v1/events", {"wait": "31"}, "wait"),
        ("/v1/events", {"wait": "nan"}, "wait"),
        ("/v1/events", {"last": "1.5"}, "last"),
        ("/v1/events", {"limit": "5"}, "limit"),
        ("/events", {"project": "\0"}, "project"),
        ("/events", {"wait": "5"}, "wait"),
    ],
)
async def test_a_wrong_query_is_refused_by_its_parameter(
    fleet: Fleet, path: str, query: dict[str, str], field: str
) -> None:
    answer = await fleet.get(path, **query)

    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


@pytest.mark.parametrize("path", ["/events", "/v1/events"])
async def test_following_needs_the_scope_read(fleet: Fleet, path: str) -> None:
    key = await fleet.key("acme", ["ingest", "admin"])

    async with asyncio.timeout(10):
        answer = await fleet.http.get(path, headers={"Authorization": f"Bearer {key}"})

    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
