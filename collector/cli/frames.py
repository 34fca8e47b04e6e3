"""One frame of `agents top`: a roster in, lines out, as many and as wide as there is room."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import click

from collector.cli.tables import CONFLICT, GAP, NARROWEST, ago, cut, lines, width_of
from collector.escapes import printable

Worker = dict[str, Any]

STATES = ("busy", "idle", "lost", "left")
SORTS: dict[str, Callable[[Worker], tuple[Any, ...]]] = {
    # Trouble first: it is what one looks for.
    "status": lambda worker: (
        not worker["conflict"],
        ("lost", "busy", "idle", "left").index(state(worker)),
    ),
    "sessions": lambda worker: (-worker["active_sessions"],),
    "cpu": lambda worker: (-(_used(worker, "cpu_pct") or 0),),
    "memory": lambda worker: (-(_used(worker, "memory_rss_bytes") or 0),),
    "seen": lambda worker: (worker["age_seconds"],),
    "name": lambda _: (),
}
VIEWS = ("both", "groups", "workers")
HEADS = ("AGENT", "STATUS", "SESSIONS", "CPU", "MEMORY", "SEEN", "NAME", "VERSION", "REGION")
# The first so many stay where there is little room; the others go before an id is cut.
NEEDED = 6
GROUP_HEADS = ("NAME", "ONLINE", "BUSY", "IDLE", "LOST", "LEFT", "SESSIONS", "VERSIONS")
MIB = 1024 * 1024
# Of what there is below the header, groups take at most this part while workers are shown too.
GROUPS_SHARE = 2


@dataclass(slots=True)
class View:
    """What is looked at, and how."""

    sort: str = "status"
    shown: str = "both"
    # Lines of the list that are scrolled over.
    offset: int = 0
    roster: dict[str, Any] | None = None
    # Since when nobody answers, and why.
    away_since: float | None = None
    trouble: str = ""


def summary(roster: dict[str, Any]) -> dict[str, Any]:
    """The roster in numbers, in all and by agent_name."""
    workers = sorted(roster["workers"], key=lambda worker: worker["agent_name"])
    return {
        "server_time": roster["server_time"],
        **_totals(workers),
        "recent_gap": roster["recent_gap"],
        "groups": [
            {"agent_name": name, **_totals(list(named))}
            for name, named in groupby(workers, key=lambda worker: worker["agent_name"])
        ],
    }


def frame(view: View, columns: int | None = None, rows: int | None = None) -> list[str]:
    """At most so many lines of at most so many places; what is None is not limited.

    Where rows are limited a person looks on, and the last line tells the keys. An offset past
    the end is brought back.
    """
    heading = _heading(view, columns)
    if view.roster is None:
        return heading[:rows]
    told = summary(view.roster)
    room = None if rows is None else max(0, rows - len(heading) - 1)
    if view.shown == "groups":
        seen, place = _window(told["groups"], view, room)
        body = _groups(seen, columns)
    else:
        body, place = _both(view, told, columns, room)
    if rows is None:
        return heading + body
    # The keys stand below what there is, and not where they would push it out.
    footer = [_keys(view, place, columns)] if rows > len(heading) + 2 else []
    return (heading + body)[: rows - len(footer)] + footer


def state(worker: Worker) -> str:
    """One word: what it does, or how it went."""
    return str(worker["reason"] if worker["status"] == "offline" else worker["status"])


def _both(
    view: View, told: dict[str, Any], columns: int | None, room: int | None
) -> tuple[list[str], str]:
    """Groups, a line between, and workers; or just these."""
    above = []
    if view.shown == "both" and told["groups"]:
        groups = _groups(told["groups"], columns)
        above = [*_shortened(groups, room, columns), ""]
    order = SORTS[view.sort]
    assert view.roster is not None
    workers = sorted(
        view.roster["workers"],
        key=lambda worker: (*order(worker), worker["agent_name"], worker["agent_id"]),
    )
    seen, place = _window(workers, view, None if room is None else room - len(above))
    return above + _workers(seen, columns), place


def _totals(workers: Sequence[Worker]) -> dict[str, Any]:
    states = Counter(map(state, workers))
    online = [worker for worker in workers if worker["status"] != "offline"]
    versions = Counter(worker["version"] for worker in online if worker["version"] is not None)
    return {
        "workers": len(workers),
        "online": len(online),
        **{each: states[each] for each in STATES},
        "sessions": sum(worker["active_sessions"] for worker in workers),
        "conflicts": sum(worker["conflict"] for worker in workers),
        "versions": [
            {"version": version, "workers": versions[version]}
            for version in sorted(versions, key=_age)
        ],
    }


def _age(version: str) -> tuple[list[int], str]:
    """1.9 goes before 1.10."""
    return [int(number) for number in re.findall(r"\d+", version)], version


def _heading(view: View, columns: int | None) -> list[str]:
    told = [_cut_styled([("collector agents top", None), *_connection(view)], columns)]
    if view.roster is not None:
        told.append(_cut_styled(_numbers(summary(view.roster)), columns))
        told += _gap(view.roster["recent_gap"], columns)
    return [*told, ""]


def _connection(view: View) -> list[tuple[str, str | None]]:
    time = [] if view.roster is None else [(f"{_clock(view.roster['server_time'])} UTC", None)]
    if view.away_since is None:
        state = ("connected", "green") if view.roster else ("asking the collector", None)
        return [*time, state]
    since = f"no answer since {_clock(view.away_since)} UTC, trying again: {view.trouble}"
    return [*time, (since, "red")]


def _numbers(told: dict[str, Any]) -> list[tuple[str, str | None]]:
    tints = {"online": None, "busy": "yellow", "idle": "green", "lost": "red", "left": None}
    numbers = [(f"{told[each]} {each}", tint) for each, tint in tints.items()]
    numbers = [(text, tint if text[0] != "0" else None) for text, tint in numbers]
    numbers.append((f"{told['sessions']} session{'s' * (told['sessions'] != 1)}", None))
    if told["conflicts"]:
        numbers.append((f"{told['conflicts']} in conflict", "red"))
    return numbers


def _gap(gap: dict[str, float] | None, columns: int | None) -> list[str]:
    if gap is None:
        return []
    away = f"No collector listened from {_clock(gap['began_at'])} to {_clock(gap['ended_at'])} UTC"
    return [_cut_styled([(f"{away}: who is lost may be alive.", "yellow")], columns)]


def _keys(view: View, place: str, columns: int | None) -> str:
    told = f"q quit  s sort: {view.sort}  g view: {view.shown}  ↑↓ scroll"
    return _cut_styled([(f"{told}  {place}".rstrip(), "bright_black")], columns)


def _groups(groups: Sequence[dict[str, Any]], columns: int | None) -> list[str]:
    rows = [
        (
            group["agent_name"],
            *(str(group[each]) for each in ("online", *STATES, "sessions")),
            _versions(group["versions"]),
        )
        for group in groups
    ]
    found = _table(GROUP_HEADS, rows, columns)
    # Two at once is a deployment under way, or one that got stuck.
    return found[:1] + [
        click.style(line, fg="yellow") if len(group["versions"]) > 1 else line
        for line, group in zip(found[1:], groups, strict=True)
    ]


def _versions(versions: Sequence[dict[str, Any]]) -> str:
    if len(versions) < 2:
        return "".join(each["version"] for each in versions)
    several = ", ".join(f"{each['version']} ×{each['workers']}" for each in versions)
    return f"{len(versions)} at once: {several}"


def _workers(workers: Sequence[Worker], columns: int | None) -> list[str]:
    if not workers:
        return [_cut_styled([("No workers match.", None)], columns)]
    return _table(HEADS, [_row(worker) for worker in workers], columns, needed=NEEDED)


def _row(worker: Worker) -> tuple[str, ...]:
    cpu, memory = _used(worker, "cpu_pct"), _used(worker, "memory_rss_bytes")
    return (
        worker["agent_id"],
        state(worker) + (CONFLICT if worker["conflict"] else ""),
        str(worker["active_sessions"]),
        "" if cpu is None else f"{cpu:.1f}%",
        "" if memory is None else f"{memory / MIB:.0f}M",
        ago(worker["age_seconds"]),
        worker["agent_name"],
        worker["version"] or "",
        worker["region"] or "",
    )


def _used(worker: Worker, field: str) -> float | None:
    """What it uses; who is offline uses nothing, whatever it said last."""
    value: float | None = None if worker["status"] == "offline" else worker[field]
    return value


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: int | None,
    *,
    needed: int = len(HEADS),
) -> list[str]:
    """The last columns are left out: where not even narrow ones fit, or down to those needed."""
    kept, rows = len(heads), [[printable(cell) for cell in row] for row in rows]
    if columns is not None:
        kept = max(1, min(kept, (columns + len(GAP)) // (NARROWEST + len(GAP))))
        while kept > needed and _width(heads[:kept], rows) > columns:
            kept -= 1
    return lines(heads[:kept], [row[:kept] for row in rows], columns)


def _width(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """What the columns take in which anything stands."""
    widest = [max(width_of(row[n]) for row in rows) for n in range(len(heads))]
    shown = [max(width, len(heads[n])) for n, width in enumerate(widest) if width]
    return sum(shown) + len(GAP) * (len(shown) - 1)


def _window(
    found: Sequence[dict[str, Any]], view: View, room: int | None
) -> tuple[Sequence[dict[str, Any]], str]:
    """As many as fit below their head, from the offset on; and which these are."""
    if room is None:
        return found, ""
    fit = max(1, room - 1)
    view.offset = max(0, min(view.offset, len(found) - fit))
    seen = found[view.offset : view.offset + fit]
    if len(seen) == len(found):
        return seen, ""
    return seen, f"{view.offset + 1}–{view.offset + len(seen)} of {len(found)}"


def _shortened(found: list[str], room: int | None, columns: int | None) -> list[str]:
    """The first of the groups, where all would leave too little room for workers."""
    if room is None or len(found) <= room // GROUPS_SHARE:
        return found
    kept = found[: max(1, room // GROUPS_SHARE - 1)]
    more = f"and {len(found) - len(kept)} more: g shows all"
    return [*kept, _cut_styled([(more, None)], columns)]


def _cut_styled(parts: Sequence[tuple[str, str | None]], columns: int | None) -> str:
    """The parts with their colours, as far as they fit."""
    shown, left = [], columns
    for text, tint in parts:
        text = printable(text)
        if left is not None:
            if left <= 0:
                break
            text = cut(text, left).rstrip()
            left -= width_of(text) + len(GAP)
        shown.append(click.style(text, fg=tint) if tint else text)
    return GAP.join(shown)


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
