"""Documents that hold a roster: the question for one, and the pieces that answer it.

A large one is made by a process of its own, so this knows neither doors nor event loops. A small
one is made by the very same functions in the process that serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal, NamedTuple

from pydantic_core import to_json

from collector import openorca
from collector.store.protocol import Store
from collector.values import SECOND, Liveness, Position, RosterQuery, Walk, Worker
from collector.workers import announced, liveness, project, project_vitals

# Workers of one piece, and of one frame of a stream: some 250 kB.
CHUNK = 500

Kind = Literal["roster", "snapshot", "poll", "vitals", "openorca", "console"]
# These are read together with the place in the log that they go on from.
_WITH_POSITION: tuple[Kind, ...] = ("snapshot", "poll", "console")


@dataclass(frozen=True, slots=True)
class Question:
    """One document that a tenant's reader asks for. Equal questions have equal answers."""

    kind: Kind
    tenant_id: str
    query: RosterQuery

    def packed(self) -> tuple[Any, ...]:
        """This question as plain values, for another process."""
        return (self.kind, self.tenant_id, astuple(self.query))

    @classmethod
    def unpacked(cls, kind: Kind, tenant_id: str, query: tuple[Any, ...]) -> Question:
        plain = RosterQuery(*query)
        return cls(kind, tenant_id, replace(plain, after=query[-1] and Walk(*query[-1])))


class Facts(NamedTuple):
    """Plain values that are known of a document beside its pieces."""

    workers: int
    # Epoch, floor and head of the log that a follower goes on in.
    position: Position | None = None
    # The stamp and the id of a page's last worker, if there is a next page.
    last: tuple[int, str] | None = None
    # For a console's stream: all that its figures need of each worker.
    standings: dict[str, openorca.Standing] | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Document:
    """An answer: its pieces in order, and what is known beside them."""

    made_at: int
    pieces: list[bytes]
    facts: Facts

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def position(self) -> Position:
        assert self.facts.position is not None
        return Position(*self.facts.position)

    @property
    def cursor(self) -> str:
        """The place in the log that a follower of this snapshot goes on from."""
        return _cursor(self.position)


class Found(NamedTuple):
    """The workers that a question is about, as one moment had them."""

    workers: list[Worker]
    position: Position | None


async def find(store: Store, question: Question, *, now: int) -> Found:
    """Read what the question is about."""
    tenant_id, query = question.tenant_id, question.query
    if question.kind in _WITH_POSITION:
        return Found(*await store.snapshot(tenant_id, query, now=now))
    # One worker past a page tells whether there is a next one.
    asked = query if query.limit is None else replace(query, limit=query.limit + 1)
    return Found(await store.roster(tenant_id, asked, now=now), None)


def make(question: Question, found: Found, *, now: int) -> Document:
    """The whole document at once."""
    return Document(now, list(pieces(question, found, now=now)), facts(question, found))


def facts(question: Question, found: Found) -> Facts:
    workers, position = found
    page = _page(question, workers)
    last = page[-1] if len(page) < len(workers) else None
    return Facts(
        len(workers),
        position,
        last and (last.first_seen, last.agent_id),
        openorca.standings(workers) if question.kind == "console" else None,
    )


def pieces(question: Question, found: Found, *, now: int) -> Iterator[bytes]:
    """The document's bytes, a bounded part at a time."""
    page = _page(question, found.workers)
    match question.kind:
        case "roster":
            yield from _listed([project(worker, now) for worker in c] for c in _chunks(page))
        case "snapshot":
            yield from _snapshot_frames(found, now)
        case "poll":
            yield from _listed([body] for body in _snapshot_bodies(found, now))
        case "vitals":
            yield from _vitals_frames(page, now)
        case "openorca":
            yield from _openorca(page, now, liveness)
        case "console":
            yield b'data: {"type":"snapshot.replace","snapshot":'
            yield from _openorca(page, now, lambda worker, _now: announced(worker))
            yield b"}\n\n"


def frame(event: str | None, body: dict[str, Any], cursor: str | None = None) -> bytes:
    """One event of a stream; unnamed and without an id where those are None."""
    name = b"" if event is None else f"event: {event}\n".encode()
    place = b"" if cursor is None else f"id: {cursor}\n".encode()
    return name + place + b"data: " + to_json(body) + b"\n\n"


def _page(question: Question, workers: Sequence[Worker]) -> Sequence[Worker]:
    limit = question.query.limit
    return workers if limit is None else workers[:limit]


def _listed(parts: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    """The members of a JSON list, without its brackets."""
    for place, part in enumerate(parts):
        yield (b"," if place else b"") + to_json(part)[1:-1]


def _chunks(workers: Sequence[Worker]) -> Iterator[Sequence[Worker]]:
    return (workers[start : start + CHUNK] for start in range(0, len(workers), CHUNK))


def _snapshot_bodies(found: Found, now: int) -> Iterator[dict[str, Any]]:
    assert found.position is not None
    chunks = list(_chunks(found.workers)) or [[]]
    for place, chunk in enumerate(chunks, 1):
        yield {
            "type": "snapshot",
            "cursor": _cursor(found.position),
            "at": now / SECOND,
            "workers": [project(worker, now, announced(worker)) for worker in chunk],
            "more": place < len(chunks),
        }


def _snapshot_frames(found: Found, now: int) -> Iterator[bytes]:
    for body in _snapshot_bodies(found, now):
        # Only the last chunk is a place to resume from.
        yield frame("snapshot", body, None if body["more"] else body["cursor"])


def _vitals_frames(workers: Sequence[Worker], now: int) -> Iterator[bytes]:
    for chunk in _chunks(workers):
        told = [project_vitals(worker) for worker in chunk]
        yield frame("vitals", {"type": "vitals", "at": now / SECOND, "workers": told})


def _openorca(
    workers: Sequence[Worker], now: int, see: Callable[[Worker, int], Liveness]
) -> Iterator[bytes]:
    """A chunk at a time, so that no more than that is held beside the workers themselves."""
    surroundings = openorca.Surroundings()

    def nodes(chunk: Sequence[Worker]) -> list[dict[str, Any]]:
        rows = [project(worker, now, see(worker, now)) for worker in chunk]
        for row in rows:
            surroundings.note(row)
        return [openorca.node(row, now / SECOND) for row in rows]

    yield b'{"agents":['
    yield from _listed(nodes(chunk) for chunk in _chunks(openorca.newest_first(workers)))
    yield b"]," + to_json(surroundings.told(now))[1:]


def _cursor(position: Position) -> str:
    return f"{position.epoch}.{position.head}"
