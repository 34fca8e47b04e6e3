"""Who did what."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class Audited(BaseModel):
    """One act."""

    id: int
    at: float
    actor: str = Field(description="A key's id, or `operator` at the store itself.")
    action: str = Field(description="Such as `key.created`.")
    subject: str = Field(description="What it was done to: a key's id, an agent_id, a filter.")
    detail: dict[str, Any]


class Audit(BaseModel):
    """Acts, newest first."""

    acts: list[Audited]
    next_before: int | None = Field(description="`before` of the next page; null on the last.")
    server_time: float
