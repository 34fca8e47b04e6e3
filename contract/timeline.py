"""One worker's history."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from contract.gap import Gap
from contract.vocabulary import SpellEnd, Told, ToldReason
from contract.worker import Worker


class Spell(BaseModel):
    """One stretch of being online."""

    online_from: float
    online_until: float | None = Field(description="Null while it lasts.")
    reason: SpellEnd | None = Field(description="What ended it; null while it lasts.")


class Transition(BaseModel):
    """One line of the log, as the feed has it but without the cursor."""

    type: Told
    at: float
    reason: ToldReason | None
    worker: Worker = Field(description="The worker as it was then.")


class Uptime(BaseModel):
    """How long a worker was online, of the time that counts."""

    online_seconds: float
    counted_seconds: float = Field(description="The window without gaps and unknown time.")
    gap_seconds: float = Field(description="When no collector listened.")
    ratio: float | None = Field(description="Online of counted; null when nothing counts.")


class Uptimes(BaseModel):
    """Uptime of the last day and the last week, whatever `since` is."""

    model_config = ConfigDict(serialize_by_alias=True)

    day: Uptime = Field(alias="24h")
    week: Uptime = Field(alias="7d")


class Timeline(BaseModel):
    """What is known of one worker since a time."""

    agent_id: str
    since: float
    server_time: float
    spells: list[Spell] = Field(description="Those that reach past `since`, oldest first.")
    transitions: list[Transition] = Field(description="The newest 1000 at most, in order.")
    gaps: list[Gap]
    uptime: Uptimes
