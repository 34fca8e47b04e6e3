"""What the feed says: the frames of `/events`, and the same by poll."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from contract.vocabulary import Told, ToldReason
from contract.worker import Worker


class Snapshot(BaseModel):
    """The roster at a cursor, or one chunk of it: where a follower begins."""

    type: Literal["snapshot"]
    cursor: str
    at: float
    workers: list[Worker]
    more: bool = Field(description="Another chunk of this snapshot follows.")


class Change(BaseModel):
    """One line of the tenant's log."""

    type: Told
    cursor: str = Field(description="Opaque; sent back, the feed goes on after this line.")
    at: float
    reason: ToldReason | None
    worker: Worker = Field(description="The worker as it was at that moment.")


class Vital(BaseModel):
    """What changes with every beat, and is no change."""

    agent_id: str
    last_seen: float
    memory_rss_bytes: int | None
    memory_total_bytes: int | None
    memory_pct: float | None
    cpu_pct: float | None


class Vitals(BaseModel):
    """Who beat since the last one; no part of the log."""

    type: Literal["vitals"]
    at: float
    workers: list[Vital]


class Events(BaseModel):
    """What came since a cursor, or a snapshot, and where to go on."""

    events: list[Annotated[Snapshot | Change, Field(discriminator="type")]]
    cursor: str = Field(description="The `after` of the next poll.")
