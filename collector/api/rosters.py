"""What a reader may ask of a roster: its query parameters and its cursor."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from collector.api import queries
from collector.errors import InvalidField
from collector.values import SECOND, RosterQuery, Walk
from contract.vocabulary import MAX_INTEGER, MAX_PAGE, MAX_TEXT, MAX_TIME_SECONDS, STATUSES, Status

REMOVAL = ("status", "agent_name", "project", "region", "unseen_for", "dry_run")
PARAMETERS = ("status", "agent_name", "project", "region", "seen_within", "limit", "cursor")


@dataclass(frozen=True, slots=True)
class Asked:
    """One reading of the roster; `as_of` is when its walk began."""

    query: RosterQuery
    as_of: int

    def cursor_after(self, last: tuple[int, str] | None) -> str | None:
        """The next page's cursor, where this one's last worker is not the last of all."""
        return None if last is None else _cursor(Walk(self.as_of, *last))


def parse(request: Request, now: int) -> Asked:
    """What the query asks for at `now`; only `status` may be given more than once."""
    given = queries.single(request, PARAMETERS, repeatable="status")
    limit = _limit(given.get("limit"))
    walk = _walk(given.get("cursor"))
    if walk is not None and limit is None:
        raise InvalidField.of("limit", "is required with cursor")
    as_of = now if walk is None else walk.as_of
    query = RosterQuery(
        statuses=_statuses(request.query_params.getlist("status")),
        agent_name=queries.text("agent_name", given),
        project=queries.text("project", given),
        region=queries.text("region", given),
        seen_since=_seen_since(given, as_of),
        limit=limit,
        after=walk,
    )
    return Asked(query, as_of)


def parse_removal(request: Request, now: int) -> tuple[RosterQuery, bool]:
    """Whom to remove, and whether that is only a preview; not everybody by mistake."""
    given = queries.single(request, REMOVAL, repeatable="status")
    if not set(given) - {"dry_run"}:
        raise InvalidField.of("query", f"give at least one of {', '.join(REMOVAL[:-1])}")
    unseen = queries.number(given, "unseen_for", least=0, most=MAX_TIME_SECONDS, default=0)
    query = RosterQuery(
        statuses=_statuses(request.query_params.getlist("status")),
        agent_name=queries.text("agent_name", given),
        project=queries.text("project", given),
        region=queries.text("region", given),
        seen_before=now - round(unseen * SECOND) if "unseen_for" in given else None,
    )
    return query, queries.yes(given, "dry_run")


def _statuses(asked: Sequence[str]) -> tuple[Status, ...]:
    if not set(asked) <= set(STATUSES):
        raise InvalidField.of("status", f"must be one of {', '.join(STATUSES)}")
    return cast("tuple[Status, ...]", tuple(sorted(set(asked))))


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 9):
        raise InvalidField.of("limit", f"must be a whole number from 1 to {MAX_PAGE}")
    if not 1 <= int(text) <= MAX_PAGE:
        raise InvalidField.of("limit", f"must be from 1 to {MAX_PAGE}")
    return int(text)


def _seen_since(given: dict[str, str], as_of: int) -> int | None:
    if "seen_within" not in given:
        return None
    within = queries.number(given, "seen_within", least=0, most=MAX_TIME_SECONDS, default=0)
    return max(0, as_of - round(within * SECOND))


def _cursor(walk: Walk) -> str:
    place = json.dumps([walk.as_of, walk.first_seen, walk.agent_id]).encode()
    return base64.urlsafe_b64encode(place).decode("ascii").rstrip("=")


def _walk(cursor: str | None) -> Walk | None:
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        match json.loads(base64.b64decode(padded, altchars=b"-_", validate=True)):
            case [int(as_of), int(first_seen), str(agent_id)] if _storable(
                as_of, first_seen, agent_id
            ):
                return Walk(as_of, first_seen, agent_id)
    except (ValueError, RecursionError, binascii.Error):
        pass
    raise InvalidField.of("cursor", "is not one that this collector gave")


def _storable(as_of: int, first_seen: int, agent_id: str) -> bool:
    times_fit = all(0 <= time <= MAX_INTEGER for time in (as_of, first_seen))
    return times_fit and "\0" not in agent_id and len(agent_id.encode()) <= 4 * MAX_TEXT
