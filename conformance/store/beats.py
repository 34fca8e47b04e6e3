"""What one beat does to its worker's row, and which line of the log it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collector.values import Beat, Worker

TTL = 45_000_000
# Two processes differ in these, so that during a conflict they are no change.
OF_PROCESS = ("version", "host", "started_at")
COMPARED = (
    "status",
    "active_sessions",
    "agent_name",
    "project",
    "region",
    "dispatch_name",
    *OF_PROCESS,
)


@dataclass
class Row:
    """A worker, and what the store knows of it beyond what a reader gets."""

    worker: Worker
    # The newest beat's own; the worker's may be another process's.
    started_at: int | None
    # None while the log says that it is offline.
    online_from: int | None


def made(beat: Beat) -> Row:
    fields = beat._asdict()
    del fields["tenant_id"]
    worker = Worker(
        **fields, first_seen=beat.last_seen, conflict_seen=None, reported=_reported(beat)
    )
    return Row(worker, beat.started_at, None if leaves(beat) else beat.last_seen)


def renewed(row: Row, beat: Beat) -> Worker:
    """The row's worker after this beat; its `first_seen` stays."""
    return made(beat).worker._replace(
        first_seen=row.worker.first_seen,
        started_at=_highest(row, beat) if _in_conflict(row, beat) else beat.started_at,
        conflict_seen=beat.last_seen if _is_second(row, beat) else row.worker.conflict_seen,
    )


def kind(row: Row, beat: Beat) -> str | None:
    """The line that the beat writes for itself: the first that applies."""
    if leaves(beat):
        return None if row.worker.reported == "left" else "left"
    if not is_online(row):
        return "online"
    if _is_second(row, beat) and not _conflict_lasts(row, beat):
        return "conflict"
    return "changed" if any(_differences(row, beat)) else None


def _differences(row: Row, beat: Beat) -> Iterable[bool]:
    ignored = OF_PROCESS if _in_conflict(row, beat) else ()
    return (
        getattr(row.worker, name) != getattr(beat, name) for name in COMPARED if name not in ignored
    )


def _is_second(row: Row, beat: Beat) -> bool:
    """Whether another process beats under the id of a worker that is alive: an older one."""
    alive = is_online(row) and beat.last_seen - row.worker.last_seen <= TTL
    if not alive or leaves(beat) or beat.started_at is None or row.started_at is None:
        return False
    return beat.started_at < row.started_at


def _conflict_lasts(row: Row, beat: Beat) -> bool:
    """A conflict of a stamp that was overwritten as a fault lies ahead, and is not counted."""
    seen = row.worker.conflict_seen
    return seen is not None and 0 <= beat.last_seen - seen <= TTL


def _in_conflict(row: Row, beat: Beat) -> bool:
    return _is_second(row, beat) or _conflict_lasts(row, beat)


def _highest(row: Row, beat: Beat) -> int | None:
    known = [s for s in (row.worker.started_at, beat.started_at) if s is not None]
    return max(known, default=None)


def leaves(beat: Beat) -> bool:
    return beat.status == "offline"


def _reported(beat: Beat) -> str:
    return "left" if leaves(beat) else "online"


def is_online(row: Row) -> bool:
    return row.worker.reported == "online"
