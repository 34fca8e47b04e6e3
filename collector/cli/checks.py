"""What `collector doctor` looks at: each check gives findings, and raises nothing of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from collector import __version__, keys
from collector.cli import client
from collector.cli.addresses import without_secrets
from collector.cli.invocation import command
from collector.clock import MAX_SKEW
from collector.errors import (
    CollectorError,
    InvalidField,
    MissingScope,
    StoreError,
    Unauthenticated,
)
from collector.settings import PREFIX, Settings, variable
from collector.store.open import is_embedded, store_for, store_name
from collector.store.protocol import Store
from collector.store.relational import RelationalStore
from collector.store.schema import HEAD
from collector.values import SECOND
from contract.vocabulary import DEFAULT_TENANT, KEY_ID_LENGTH, KEY_PREFIX

MIB = 2**20
SPACE_FAILED, SPACE_WARNING, SHARE_WARNING = 64 * MIB, 1024 * MIB, 0.1
SKEW_WARNING = SECOND
HEARTBEAT = "/v1/agents/heartbeat"
NTP = "let NTP set it: timedatectl set-ntp true"
DOCTOR = "collector-doctor"
# What SQLite says of a file that it can't read, whoever asks.
CORRUPT = ("not a database", "malformed")
# What helps where `/readyz` names this.
READY_FIXES = {
    "store": "start the collector's store, or see the collector's log for why it does not answer",
    "commits": "see the collector's log for why its store takes nothing; likely its disk is full",
    "listening": "see the collector's log for why its store takes nothing; likely it is locked",
    "migrations": "on the collector's store, run: {command} migrate",
    "stamps": (
        "the collector mends them by itself within 5 s; if it tells this again and again, let NTP "
        "set the clock on its machine, and on its PostgreSQL's, and restart it"
    ),
    "clock": (
        "on the collector's machine, and on its PostgreSQL's, let NTP set the clock "
        "(timedatectl set-ntp true); if it was set since the start, restart the collector"
    ),
}


Now = Callable[[], int]


def _wall() -> int:
    return time.time_ns() // 1000


class Finding(NamedTuple):
    """One line for people, and what to do where it is not well."""

    check: str
    result: Literal["ok", "warning", "failed"]
    says: str
    fix: str | None = None
    # Whether it failed only because nobody answers.
    is_unreachable: bool = False


class Setting(NamedTuple):
    name: str
    value: str | None
    source: Literal["environment", "default"]


class Usage(Protocol):
    @property
    def total(self) -> int: ...

    @property
    def free(self) -> int: ...


def settings_of(environment: Mapping[str, str]) -> list[Setting]:
    """Every setting as it is now, right or wrong, without passwords and keys."""
    own = [(variable(each.name), each.default) for each in fields(Settings)]
    asked = [("VOICEGW_COLLECTOR_URL", client.DEFAULT_URL), ("VOICEGW_API_KEY", None)]
    return [
        Setting(name, _shown(name, environment[name]), "environment")
        if environment.get(name)
        else Setting(name, None if default is None else str(default), "default")
        for name, default in (*own, *asked)
    ]


def check_settings(environment: Mapping[str, str]) -> tuple[Settings | None, list[Finding]]:
    try:
        settings = Settings.from_environment(environment)
        store_name(settings)
        store_for(settings)
    except InvalidField as error:
        fix = "set it to that, or unset it for its default"
        return None, [Finding("settings", "failed", error.detail, fix)]
    known = {variable(each.name) for each in fields(Settings)}
    given = {name for name in environment if name.startswith(PREFIX)}
    says = f"{len(known & given)} of {len(known)} are set in the environment"
    strangers = [_stranger(name, known) for name in sorted(given - known)]
    return settings, [Finding("settings", "ok", says), *strangers]


def check_store(settings: Settings, *, now: Now = _wall) -> list[Finding]:
    """Whether it answers, its schema, and its clock against this machine's, which is `now`."""
    if is_embedded(settings) and not Path(store_name(settings)).exists():
        return [_no_file(settings)]
    return asyncio.run(_ask_store(settings, now))


async def _ask_store(settings: Settings, now: Now) -> list[Finding]:
    store = store_for(settings)
    assert isinstance(store, RelationalStore)
    try:
        await store.open()
        answers = Finding("store", "ok", f"{store_name(settings)} answers")
        revision = await store.revision()
        schema = _schema(revision, shared=not is_embedded(settings))
        asked, reading, answered = now(), await store.time(), now()
        skew = None if reading is None else (asked + answered) // 2 - reading
        clock = [] if skew is None else [clock_finding("store", skew)]
        stamps = [] if revision is None else [await _stamps(store, reading or now())]
        return [answers, schema, *stamps, *clock]
    except StoreError as error:
        return [_store_down(settings, error)]
    finally:
        await store.close()


def check_disk(
    settings: Settings, *, usage: Callable[[Path], Usage] = shutil.disk_usage
) -> list[Finding]:
    """Room for the embedded store to grow, where its file is."""
    if not is_embedded(settings):
        return []
    there = Path(store_name(settings)).absolute().parent
    while not there.exists():
        there = there.parent
    room = usage(there)
    share = room.free / max(room.total, 1)
    says = f"{room.free // MIB} MiB ({share:.0%}) are free where the store is, in {there}"
    fix = "free some space, or move the store and set COLLECTOR_STORE_URL"
    if room.free < SPACE_FAILED:
        return [Finding("disk", "failed", says, fix)]
    if room.free < SPACE_WARNING or share < SHARE_WARNING:
        return [Finding("disk", "warning", says, fix)]
    return [Finding("disk", "ok", says)]


def check_collector() -> list[Finding]:
    """The one at VOICEGW_COLLECTOR_URL, as anybody may ask it."""
    try:
        client.probe("/healthz")
        about = client.probe("/v1/contract")
        described = f"{about['implementation']} {about['version']} answers at {_place()}"
    except InvalidField as error:
        fix = "set it to where the collector is, or unset it for its default"
        return [Finding("collector", "failed", error.detail, fix)]
    except client.CollectorUnreachable:
        says = f"no collector answers at {_place()}"
        fix = f"start one with: {command()} serve; or set VOICEGW_COLLECTOR_URL to where one is"
        return [Finding("collector", "failed", says, fix, is_unreachable=True)]
    except (CollectorError, KeyError, TypeError):
        says = f"what answers at {_place()} is no collector"
        return [Finding("collector", "failed", says, "set VOICEGW_COLLECTOR_URL to where one is")]
    return [_version(described, about["version"]), _readiness()]


def check_beat(settings: Settings | None = None, *, now: Now = _wall) -> list[Finding]:
    """A beat that leaves nobody alive, with VOICEGW_API_KEY, and how far apart the clocks are."""
    if not os.environ.get("VOICEGW_API_KEY"):
        return [Finding("beat", "warning", "not tried: VOICEGW_API_KEY is not set", _mint())]
    # Always the same one: a second look changes nothing, in the roster, the log or the audit.
    body = {"agent_id": DOCTOR, "agent_name": DOCTOR, "status": "offline"}
    asked = now()
    try:
        answer = client.post(HEARTBEAT, body)
    except Unauthenticated as error:
        return [Finding("beat", "failed", error.detail + _known_key(settings), _mint())]
    except MissingScope as error:
        return [Finding("beat", "failed", error.detail, _mint())]
    except CollectorError as error:
        away = isinstance(error, client.CollectorUnreachable)
        says, fix = f"not taken: {error.detail}", "see the collector's log"
        return [Finding("beat", "failed", says, fix, is_unreachable=away)]
    skew = (asked + now()) // 2 - round(answer["server_time"] * SECOND)
    taken = Finding("beat", "ok", f"one of {DOCTOR} was taken; the roster has it as offline")
    return [taken, clock_finding("collector", skew)]


def clock_finding(whose: str, skew: int) -> Finding:
    """What it means that this machine is ahead of another by this many microseconds."""
    check = f"{whose} clock"
    if abs(skew) <= SKEW_WARNING:
        return Finding(check, "ok", f"this machine's clock and the {whose}'s agree")
    side = "ahead of" if skew > 0 else "behind"
    says = f"this machine's clock is {abs(skew) / SECOND:.1f} s {side} the {whose}'s"
    return Finding(check, "failed" if abs(skew) > MAX_SKEW else "warning", says, NTP)


def _shown(name: str, value: str) -> str:
    if name == variable("metrics_key"):
        return "(set)"
    if name != "VOICEGW_API_KEY":
        return without_secrets(value) if name.endswith("_URL") else value
    # The part of a key that is its public id.
    is_ours = value.startswith(KEY_PREFIX)
    return f"{value[: len(KEY_PREFIX) + KEY_ID_LENGTH]}…" if is_ours else "(set)"


def _place() -> str:
    return without_secrets(client.url())


def _stranger(name: str, known: set[str]) -> Finding:
    near = get_close_matches(name, known, 1)
    fix = f"did you mean {near[0]}?" if near else "unset it; the README lists the settings"
    return Finding("settings", "warning", f"{name} is no setting, and does nothing", fix)


def _no_file(settings: Settings) -> Finding:
    says = f"there is no store at {store_name(settings)}"
    if os.environ.get("VOICEGW_COLLECTOR_URL") and not os.environ.get(variable("store_url")):
        fix = "none is needed where only workers and consoles are"
        return Finding("store", "warning", says, fix)
    fix = (
        "run this where the collector runs, or set COLLECTOR_STORE_URL; "
        f"`{command()} serve` makes a new one"
    )
    return Finding("store", "failed", says, fix, is_unreachable=True)


def _store_down(settings: Settings, error: StoreError) -> Finding:
    if is_embedded(settings) and any(sign in error.detail for sign in CORRUPT):
        says = f"{store_name(settings)} is no store, or a broken one: {error.detail}"
        fix = (
            "check the path in COLLECTOR_STORE_URL; if it is right, stop the collector and put a "
            f"backup in its place: {command()} restore FILE"
        )
        return Finding("store", "failed", says, fix)
    fix = (
        "make the file and its directory readable and writable for this user"
        if is_embedded(settings)
        else "start PostgreSQL, or set COLLECTOR_STORE_URL to where it is"
    )
    says = f"{store_name(settings)} does not answer: {error.detail}"
    return Finding("store", "failed", says, fix, is_unreachable=True)


async def _stamps(store: Store, now: int) -> Finding:
    found = await store.ahead(now=now)
    if not found.is_a_fault:
        return Finding("stamps", "ok", "nothing in the store is stamped ahead of now")
    fix = (
        "let NTP set the clocks of this machine and of the collector's; a collector that runs with "
        "the right time mends them by itself within a minute, and at its start"
    )
    return Finding("stamps", "failed", f"{found} of now", fix)


def _schema(revision: str | None, *, shared: bool) -> Finding:
    found = "nothing" if revision is None else f"revision {revision}"
    if revision is None or revision < HEAD:
        says = f"the store has {found}, this version needs revision {HEAD}"
        # An embedded one is brought up to date by whoever serves it next.
        result: Literal["failed", "warning"] = "failed" if shared else "warning"
        return Finding("migrations", result, says, f"run: {command()} migrate")
    if revision > HEAD:
        says = f"the store has {found}, this version knows only {HEAD}"
        fix = "it works; update this collector to the others' version when you can"
        return Finding("migrations", "warning", says, fix)
    return Finding("migrations", "ok", f"the store's schema is current, {found}")


def _version(described: str, version: str) -> Finding:
    if version == __version__:
        return Finding("collector", "ok", described)
    says = f"{described}, this command is {__version__}"
    return Finding("collector", "warning", says, "use the same version for both")


def _readiness() -> Finding:
    try:
        client.probe("/readyz")
    except CollectorError as error:
        named = [name for name, _ in error.errors]
        fixes = [READY_FIXES[name] for name in named if name in READY_FIXES]
        fix = "; ".join(fixes or ["see the collector's log"]).format(command=command())
        # Nothing is named by what stands in front of it, and says that it is away.
        away = isinstance(error, client.CollectorUnreachable) and set(named) <= {"store"}
        says = f"it is not ready: {error.detail}"
        return Finding("readiness", "failed", says, fix, is_unreachable=away)
    return Finding("readiness", "ok", "it is ready: its store takes beats, its clocks agree")


def _known_key(settings: Settings | None) -> str:
    """What the store at hand has of a key that the collector refused; nothing if it can't say."""
    if settings is None or (is_embedded(settings) and not Path(store_name(settings)).exists()):
        return ""
    try:
        state = asyncio.run(_key_state(settings, os.environ["VOICEGW_API_KEY"].strip()))
    except StoreError:
        return ""
    return f" In {store_name(settings)} it is {state}."


async def _key_state(settings: Settings, key: str) -> str:
    store = store_for(settings)
    try:
        await store.open()
        found = await store.find_key(key.removeprefix(KEY_PREFIX)[:KEY_ID_LENGTH])
    finally:
        await store.close()
    if found is None:
        return "unknown"
    state = keys.state(found, _wall())
    return (
        "active, so it is mistyped, or the collector has another store"
        if state == "active"
        else state
    )


def _mint() -> str:
    keys = f"{command()} keys create --tenant {DEFAULT_TENANT} --scopes ingest,read"
    return f"set VOICEGW_API_KEY to a key that this mints, on the collector's store: {keys}"
