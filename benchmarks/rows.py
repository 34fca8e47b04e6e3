"""The rows of the tables in docs/performance.md and the README."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.neighbours import CROWDS


@dataclass(frozen=True)
class Row:
    """A row says the same of both stores; several figures stand in one cell, in turn."""

    label: str
    sqlite: Sequence[str]
    postgres: Sequence[str]


def _both(label: str, *names: str) -> Row:
    """The same figures of each store, by the two names that chapters have for it."""
    return Row(
        label,
        [name.format(store="SQLite", kind="selfhosted") for name in names],
        [name.format(store="PostgreSQL", kind="cloud") for name in names],
    )


def _one(label: str, *names: str) -> Row:
    """A row about code that both stores share has one figure for both."""
    return Row(label, names, ())


_PEER = "{{store}} over {connections} connections: times the peer with {size} workers over 4"
_COLD = "{{kind}} at {pace} of its most: {what}"
_SERVED, _KEPT_UP = (
    "1,000 cold keys served, times bare argon2",
    "known keys' beats that keep up meanwhile",
)
_FLOOD = "{{kind}}: beats beside a flood of {wrong}, of without"
_FOLLOWED = "{kind}, 1,000 subscribers, 5% changes: beats, of without"
_DELIVERY = "{} deliveries/s: processor time of one, of plain sse-starlette's"
_NO_OP = "a no-op Starlette route at 70% of its most: {}"
_PACED = "{{store}} at 70% of its most: {}"

GOALS = (
    _both("beats a second, of a no-op Starlette route", "{store}: of a no-op Starlette route"),
    _both("the same, of a no-op raw ASGI function", "{store}: of a no-op raw ASGI app"),
    _both(
        "with 1,000,000 workers in the store, of with 100",
        "{store}: with 1,000,000 workers, of with 100 workers",
    ),
    *(
        _both(
            f"times the peer with {size} workers, 4 connections each",
            _PEER.format(connections=4, size=size),
        )
        for size in ("10", "1,000")
    ),
    _both("p99 of p50 at 70% of the most, from when a beat was due", _PACED.format("p99 of p50")),
    *(
        _both(f"{label} {share} of the most", _COLD.format(pace=pace, what=what))
        for pace, share in (("25%", "a quarter"), ("50%", "half"))
        for what, label in (
            (_SERVED, "1,000 cold keys served, times bare argon2, beside"),
            (_KEPT_UP, "known keys' beats that keep up meanwhile, at"),
        )
    ),
    *(
        _both(f"beats beside a flood of {wrong}, of without", _FLOOD.format(wrong=wrong))
        for wrong in (
            "unknown keys",
            "wrong secrets of keys in use",
            "wrong secrets of unused keys",
        )
    ),
    _both(
        "roster of 10,000 whole, of the bare SQL and encoding",
        "{kind}: 10,000 workers whole, of bare",
    ),
    _both(
        "the same in pages of 500, of bare pages",
        "{kind}: in pages of 500, of bare in the same pages",
    ),
    _one(
        "processor time of a delivery, of plain sse-starlette's, at 40,000 a second",
        _DELIVERY.format("40,000"),
    ),
    _one("the same at 10,000 a second", _DELIVERY.format("10,000")),
    _both(
        "memory with 100,000 live workers, of with 100",
        "{store}: memory with 100,000 live workers, of with 100",
    ),
    _both("beats with 1,000 subscribers and 5% changes, of without", _FOLLOWED),
)
OTHERS = (
    _both("beats a second on this machine", "{store}: beats a second"),
    _both(
        "processor time a beat of the process that answers, of a no-op route's",
        "{store}: processor time of the answering process a beat, of a no-op route's",
    ),
    _both("of a no-op ASGI endpoint in the same router", "{store}: of a no-op ASGI endpoint"),
    Row(
        "times one upsert a request; times the same, prepared on 16 connections",
        ["SQLite: times one upsert a request"],
        ["PostgreSQL: times one upsert a request", "PostgreSQL: times the same, prepared"],
    ),
    Row(
        "processor time a beat, of the collector's processes; of PostgreSQL",
        ["SQLite: processor time of the collector a beat"],
        [
            "PostgreSQL: processor time of the collector a beat",
            "PostgreSQL: processor time of PostgreSQL a beat",
        ],
    ),
    Row(
        "bytes written a beat: pages of SQLite's log, records of PostgreSQL's",
        ["SQLite: bytes written a beat"],
        ["PostgreSQL: bytes of WAL a beat"],
    ),
    _both("p50; p99; p99.9 at 70% of the most", *map(_PACED.format, ("p50", "p99", "p99.9"))),
    _one("the same of a no-op route", *map(_NO_OP.format, ("p50", "p99", "p99.9"))),
    _one("p99 of p50 of a no-op route", _NO_OP.format("p99 of p50")),
    _both(
        "over 64 connections, times the peer over 4, with 10 workers; with 1,000",
        *(_PEER.format(connections=64, size=size) for size in ("10", "1,000")),
    ),
    _both(
        "with 10,000 workers in the store; with 100,000, of with 100",
        "{store}: with 10,000 workers, of with 100 workers",
        "{store}: with 100,000 workers, of with 100 workers",
    ),
    _both(
        "with 1 tenant; with 10,000, of with 50",
        "{store}: with 1 tenant, of with 50",
        "{store}: with 10,000 tenants, of with 50",
    ),
    _both(
        "5% of the beats change something; 50%, of none",
        "{store}: 5% of the beats change something, of none",
        "{store}: 50% of the beats change something, of none",
    ),
    _both(
        "while a roster of 10,000 is read without a pause, of without; rosters a second",
        "{store}: with a roster being read of 10,000 workers, of without",
        "{store}: such rosters a second",
    ),
    _both("roster of 10,000 whole", "{kind}: whole"),
    _both(
        "beats with 1,000 told of 40 changes a second, of without; deliveries a second",
        "{kind}, 1,000 told of 40 changes/s: beats, of without",
        "{kind}, 1,000 told of 40 changes/s: deliveries",
    ),
    _one(
        "99% of deliveries within, at 10,000 a second; plain sse-starlette's",
        "10,000 deliveries/s: 99% within",
        "10,000 deliveries/s: 99% within, plain",
    ),
    _both(
        "10,000 workers that die within a second: until the last is told, after its TTL",
        "{kind}: 10,000 told lost after the TTL; the tick is 1 s",
    ),
    _both(
        "beats of the living meanwhile, of before",
        "{kind}: beats of the living meanwhile, of before",
    ),
    Row(
        "two processes, of one, on two cores for everything",
        (),
        ["PostgreSQL: 2 processes, of 1, on 2 cores for everything"],
    ),
)
HEADLINES = (
    _both(
        "durable beats a second, of a no-op Starlette route's requests",
        "{store}: of a no-op Starlette route",
    ),
    _both(
        "processor time of the process that answers them, of a no-op Starlette route's",
        "{store}: processor time of the answering process a beat, of a no-op route's",
    ),
    _both("durable beats, times one upsert a request", "{store}: times one upsert a request"),
    _both(
        "the same, times the open-source peer with 1,000 workers, at equal concurrency",
        _PEER.format(connections=4, size="1,000"),
    ),
    _both(
        "with 100,000 workers in the store, of with 100",
        "{store}: with 100,000 workers, of with 100 workers",
    ),
    _both(
        "memory with 100,000 live workers, of with 100",
        "{store}: memory with 100,000 live workers, of with 100",
    ),
    _both(
        "beats of known keys beside a flood of unknown ones, of without",
        _FLOOD.format(wrong="unknown keys"),
    ),
)
# These rows are of the chapters on neighbours and quotas, which an older run does not have.
BESIDE = (
    _both("beats with quotas on, of without", "{store}: beats with quotas on, of without"),
    *(
        _both(
            f"p99 of others' beats beside {name}, of beside the same on another collector",
            f"{{store}}, beside {name}: p99, of beside the same elsewhere",
        )
        for name in CROWDS
    ),
    *(
        _both(f"peak of memory beside {name}", f"{{store}}, beside {name}: peak of memory")
        for name in CROWDS
    ),
)
