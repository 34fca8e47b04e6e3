"""A store that hangs: its writer stopped, or its table locked by somebody else."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import asyncpg
from sqlalchemy import make_url

from benchmarks import usage
from benchmarks.besieged import Answer, Besieged, Scale, Took
from conformance.processes import is_alive

# The contract's: whatever the store does, a beat is answered within this long.
ANSWER_SECONDS = 12
PATIENCE_SECONDS = 30
# So often a beat is sent and /readyz is looked at, while the store hangs.
EVERY_SECONDS = 0.25
LOOK_PATIENCE_SECONDS = 5
# A commit may take 5 s before it counts as one that hangs.
UNREADY_WITHIN_SECONDS = 8
BACK_AFTER_LOCK_SECONDS = 1
BACK_AFTER_HANG_SECONDS = 3
BACK_EVERY_SECONDS = 0.05
# Past COLLECTOR_SHUTDOWN_SECONDS.
STOP_SLACK_SECONDS = 3
UNDER_WAY_SECONDS = 0.5
STOPPING_EVERY_SECONDS = 0.01
LOCK_WAIT_SECONDS = 10
WRITER = b"collector.store.writer_process"

Hanging = Callable[[], AbstractAsyncContextManager[None]]


@dataclass
class Seen:
    """The answers that callers got while the store hung, and after it was back."""

    began_at: float = 0
    ended_at: float = 0
    back_at: float | None = None
    beats: list[Answer] = field(default_factory=list)
    looks: list[Answer] = field(default_factory=list)


def settings(scale: Scale) -> Mapping[str, str]:
    return {"COLLECTOR_SHUTDOWN_SECONDS": str(scale.shutdown_seconds)}


async def hung_writer(on: Besieged) -> None:
    """Stopped in the middle: beats are refused in time, readiness says so, and SIGTERM ends it."""
    is_sqlite = on.stage.kind == "selfhosted"
    hanging: Hanging = partial(_stopped_writer if is_sqlite else _lost_packets, on)
    seen = await _during(on, hanging, on.scale.hang_seconds)
    judge_beats(on, seen)
    judge_readiness(on, seen)
    judge_return(on, seen, BACK_AFTER_HANG_SECONDS)
    await _judge_stop(on, hanging)


async def locked_table(on: Besieged) -> None:
    """Somebody else locks it, as a migration does: refused in time, and served right after."""
    is_sqlite = on.stage.kind == "selfhosted"
    hanging: Hanging = partial(_locked_file if is_sqlite else _locked_table, on)
    seen = await _during(on, hanging, on.scale.lock_seconds)
    judge_beats(on, seen)
    judge_return(on, seen, BACK_AFTER_LOCK_SECONDS)


async def _during(on: Besieged, hanging: Hanging, seconds: float) -> Seen:
    """Ask all the while; what is under way when the store is let go is waited for."""
    seen = Seen()
    async with asyncio.TaskGroup() as asking:
        async with hanging():
            on.say(f"the store hangs for {seconds:g} s")
            seen.began_at = _now()
            while _now() < seen.began_at + seconds:
                asking.create_task(_note(seen.beats, on.beat(PATIENCE_SECONDS)))
                asking.create_task(_note(seen.looks, on.readiness(LOOK_PATIENCE_SECONDS)))
                await asyncio.sleep(EVERY_SECONDS)
        seen.ended_at = _now()
        while seen.back_at is None and _now() < seen.ended_at + PATIENCE_SECONDS:
            asking.create_task(_note_return(on, seen))
            await asyncio.sleep(BACK_EVERY_SECONDS)
    on.tried += len(seen.beats)
    on.took = Took.of([each.seconds for each in seen.beats])
    return seen


async def _note(answers: list[Answer], asked: Awaitable[Answer]) -> None:
    answers.append(await asked)


async def _note_return(on: Besieged, seen: Seen) -> None:
    answer = await on.beat(PATIENCE_SECONDS)
    if answer.status == 202:
        seen.back_at = min(seen.back_at or _now(), answer.sent_at + answer.seconds)


def judge_beats(on: Besieged, seen: Seen) -> None:
    late = sum(each.status == 0 or each.seconds > ANSWER_SECONDS for each in seen.beats)
    on.fault("beats", f"{late} were not answered within {ANSWER_SECONDS} s", late)
    refused = [each for each in seen.beats if each.status not in (0, 202)]
    others = sum((each.status, each.code) != (503, "store_unavailable") for each in refused)
    on.fault("answers", f"{others} were refused otherwise than store_unavailable", others)
    early = sum(
        each.status == 202 and each.sent_at + each.seconds < seen.ended_at for each in seen.beats
    )
    on.fault("answers", f"{early} were accepted by a store that hung", early)


def judge_readiness(on: Besieged, seen: Seen) -> None:
    """Not ready within some seconds, and from then on until the store is let go."""
    looks = sorted(seen.looks, key=lambda look: look.sent_at)
    unready = [look.sent_at for look in looks if look.status != 200]
    first = unready[0] if unready else seen.ended_at
    if first - seen.began_at > UNREADY_WITHIN_SECONDS:
        on.fault("ready", f"the collector said so for {first - seen.began_at:.1f} s")
    again = sum(
        look.status == 200 and first < look.sent_at and look.sent_at + look.seconds < seen.ended_at
        for look in looks
    )
    on.fault("ready", f"{again} looks said so again before the store was let go", again)
    on.tried += len(looks)


def judge_return(on: Besieged, seen: Seen, within: float) -> None:
    after = None if seen.back_at is None else seen.back_at - seen.ended_at
    if after is None:
        on.fault("back", f"no beat was accepted within {PATIENCE_SECONDS} s")
    elif after > within:
        on.fault("back", f"a beat was accepted only after {after:.1f} s")
    else:
        on.say(f"the first beat was accepted {after:.2f} s after the store was let go")


async def _judge_stop(on: Besieged, hanging: Hanging) -> None:
    """SIGTERM while a beat waits for a store that hangs."""
    family = usage.family(on.pid)
    limit = on.scale.shutdown_seconds + STOP_SLACK_SECONDS
    on.tried += 1
    async with hanging():
        waiting = asyncio.create_task(on.beat(PATIENCE_SECONDS))
        await asyncio.sleep(UNDER_WAY_SECONDS)
        began = _now()
        on.process.popen.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while on.is_running:
                    await asyncio.sleep(0.05)
        if on.is_running:
            on.fault("stops", f"SIGTERM did not end the collector within {limit} s")
            await on.stage.kill()
        else:
            on.say(f"SIGTERM ended the collector in {_now() - began:.1f} s")
        await waiting
    await _judge_children(on, family[1:])


async def _judge_children(on: Besieged, children: list[int]) -> None:
    """A writer that is let go finds nobody there, and ends."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_SLACK_SECONDS):
            while any(map(is_alive, children)):
                await asyncio.sleep(0.05)
    left = [pid for pid in children if is_alive(pid)]
    on.fault("stops", f"{len(left)} of its processes were left behind", len(left))
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def _stopped_writer(on: Besieged) -> AsyncIterator[None]:
    """SIGSTOP, for the process that writes to SQLite and for each that takes its place."""
    stopped: set[int] = set()

    async def stop_for_ever() -> None:
        while True:
            for pid in set(_writers(on.pid)) - stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    stopped.add(pid)
            await asyncio.sleep(STOPPING_EVERY_SECONDS)

    stopping = asyncio.create_task(stop_for_ever())
    # It has begun when this goes on: nobody beats before the writer is stopped.
    await asyncio.sleep(2 * STOPPING_EVERY_SECONDS)
    try:
        yield
    finally:
        stopping.cancel()
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _writers(pid: int) -> list[int]:
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in usage.family(pid)[1:]:
            if WRITER in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def _lost_packets(on: Besieged) -> AbstractAsyncContextManager[None]:
    """Whatever the writer says to PostgreSQL; everybody else reaches it."""
    assert on.stretch is not None
    return on.stretch.impassable()


@asynccontextmanager
async def _locked_table(on: Besieged) -> AsyncIterator[None]:
    url = make_url(on.stage.url).set(drivername="postgresql")
    dsn = url.render_as_string(hide_password=False)
    connection = await asyncpg.connect(dsn, timeout=LOCK_WAIT_SECONDS)
    try:
        await connection.execute("BEGIN; LOCK TABLE workers IN ACCESS EXCLUSIVE MODE")
        yield
    finally:
        await connection.close()


@asynccontextmanager
async def _locked_file(on: Besieged) -> AsyncIterator[None]:
    """This process locks the file, as the command line would."""
    path = make_url(on.stage.url).database
    assert path is not None
    connection = sqlite3.connect(path, timeout=LOCK_WAIT_SECONDS, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
    finally:
        connection.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
