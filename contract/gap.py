"""The collectors' own gaps: when nobody listened."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Gap(BaseModel):
    """A time in which no collector of the store listened."""

    began_at: float
    ended_at: float
    seconds: float = Field(description="How long it was.")


class Gaps(BaseModel):
    """The store's gaps, oldest first."""

    gaps: list[Gap]
    server_time: float
