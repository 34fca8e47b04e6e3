"""The tenant's workers in numbers."""

from __future__ import annotations

from pydantic import BaseModel, Field


class ByStatus(BaseModel):
    """How many workers read as each status."""

    idle: int
    busy: int
    offline: int


class Totals(BaseModel):
    """Workers and their sessions."""

    workers: int
    sessions: int = Field(description="May exceed 64 bits.")
    by_status: ByStatus


class Named(Totals):
    """Those of one agent_name."""

    agent_name: str


class Summary(Totals):
    """All workers of the tenant, at one moment."""

    server_time: float
    by_agent_name: list[Named] = Field(description="By code point.")
