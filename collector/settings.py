"""All settings, each from one environment variable named COLLECTOR_ and the field's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from collector.errors import InvalidField

PREFIX = "COLLECTOR_"
LOG_FORMATS = ("auto", "text", "json")
SWITCH = ("on", "off")
LOG_LEVELS = ("debug", "info", "warning", "error")
_PORT = r"(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_ADDRESS = re.compile(rf"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):{_PORT}")
_SECRET = re.compile(r"[!-~]{16,}")
_SECRETS = ("metrics_key",)
_AT_LEAST_0 = ("max_workers", "max_keys", "max_beats_per_second", "audit_keep_days")
_AT_LEAST_1 = (
    "pool_size",
    "subscribers",
    "reads",
    "read_megabytes",
    "verifiers",
    "forget_after_days",
    "events_keep_days",
    "events_keep",
    "spells_keep_days",
    "session_days",
    "request_seconds",
    "shutdown_seconds",
)


def _setting(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator may choose; the README lists the same rows."""

    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8080, "Port to listen on; 0 takes a free one.")
    store_url: str = _setting(
        "sqlite:///.data/collector.db",
        "The store: `sqlite:///PATH` or `postgresql://USER@HOST/DATABASE`.",
    )
    direct_url: str | None = _setting(
        None,
        "PostgreSQL without a pooler in between, for the writer and for migrations, "
        "when `COLLECTOR_STORE_URL` goes through pgbouncer.",
    )
    pool_size: int = _setting(5, "PostgreSQL connections for everything but the writer.")
    queue_limit: int = _setting(
        8192, "Beats that may wait for their commit; one tenant may hold a quarter of them."
    )
    subscribers: int = _setting(1000, "Event streams that one tenant may have on one process.")
    reads: int = _setting(
        8,
        "Rosters and snapshots that one tenant may have under way on one process, and as many "
        "first batches of streams; all tenants together eight times as many. Others wait, and get "
        "429 after 10 s.",
    )
    read_megabytes: int = _setting(
        32,
        "Megabytes of them that are being sent to one tenant; all together four times as many.",
    )
    max_workers: int = _setting(
        0,
        "Live workers that one tenant may have; 0 is no limit. One process keeps it exactly, "
        "several may let in some more within 10 s.",
    )
    max_keys: int = _setting(1000, "Active keys that one tenant may make over HTTP; 0 is no limit.")
    max_beats_per_second: int = _setting(
        0, "Heartbeats a second that one process takes from one tenant; 0 is no limit."
    )
    fast_path: str = _setting(
        "on",
        "`on` lets a heartbeat in as soon as its connection has read it; `off` sends each through "
        "the app, at about twice the cost and with the same answers.",
    )
    verifiers: int = _setting(2, "Threads that verify keys seen for the first time.")
    forget_after_days: int = _setting(
        30, "Days after its last beat that a worker is removed by itself."
    )
    events_keep_days: int = _setting(7, "Days that a line of the log is kept.")
    events_keep: int = _setting(
        100_000, "Lines of one tenant's log that are kept, however young the others are."
    )
    spells_keep_days: int = _setting(
        90, "Days that ended spells of being online, and the collectors' gaps, are kept."
    )
    audit_keep_days: int = _setting(
        365, "Days that an act of the audit is kept; 0 keeps all of them for ever."
    )
    session_days: int = _setting(
        7, "Days that a browser stays signed in, if its key lasts that long."
    )
    request_seconds: int = _setting(
        20,
        "How long a request may take from its first byte to its last, and a new connection to "
        "say anything.",
    )
    shutdown_seconds: int = _setting(
        10,
        "Within this a collector that is told to stop ends, whatever hangs; six tenths of it are "
        "for answers that are under way.",
    )
    metrics_listen: str | None = _setting(
        None,
        "`HOST:PORT` where `/metrics` is served instead, and nothing else; `COLLECTOR_PORT` then "
        "has none.",
    )
    metrics_key: str | None = _setting(
        None,
        "What `/metrics` asks for as `Authorization: Bearer …`, 16 characters or more; no tenant's "
        "key opens it, for it tells of all of them.",
    )
    log_level: str = _setting("info", "`debug`, `info`, `warning` or `error`.")
    log_format: str = _setting(
        "auto", "`text`, `json`, or `auto`: text on a terminal, JSON otherwise."
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        for name in _SECRETS:
            # An empty file or variable of a secret is a mistake that would leave a door open.
            _require(name, environment.get(variable(name)) != "", "is set and empty")
        given = {
            each.name: _parse(variable(each.name), environment[variable(each.name)], each.default)
            for each in fields(cls)
            if environment.get(variable(each.name))
        }
        return cls(**given)

    def __post_init__(self) -> None:
        _require("port", 0 <= self.port <= 65535, "must be between 0 and 65535")
        for name in _AT_LEAST_0:
            _require(name, getattr(self, name) >= 0, "must be at least 0")
        for name in _AT_LEAST_1:
            _require(name, getattr(self, name) >= 1, "must be at least 1")
        _require("queue_limit", self.queue_limit >= 4, "must be at least 4")
        _require(
            "metrics_listen",
            self.metrics_listen is None or _ADDRESS.fullmatch(self.metrics_listen) is not None,
            "must be HOST:PORT, with an IPv6 address in brackets",
        )
        _require(
            "metrics_key",
            self.metrics_key is None or _SECRET.fullmatch(self.metrics_key) is not None,
            "must be 16 or more visible ASCII characters",
        )
        _require("fast_path", self.fast_path in SWITCH, f"must be one of {', '.join(SWITCH)}")
        _require(
            "log_level", self.log_level in LOG_LEVELS, f"must be one of {', '.join(LOG_LEVELS)}"
        )
        _require(
            "log_format",
            self.log_format in LOG_FORMATS,
            f"must be one of {', '.join(LOG_FORMATS)}",
        )


def address(listen: str) -> tuple[str, int]:
    """Host and port of a setting that is `HOST:PORT`."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def variable(name: str) -> str:
    return PREFIX + name.upper()


def _parse(name: str, text: str, default: Any) -> Any:
    if not isinstance(default, int):
        return text
    try:
        return int(text)
    except ValueError:
        raise InvalidField.of(name, f"must be a whole number, not {text!r}") from None


def _require(name: str, holds: bool, message: str) -> None:
    if not holds:
        raise InvalidField.of(variable(name), message)
