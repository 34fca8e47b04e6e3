"""Removal of all who match."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Removal(BaseModel):
    """Who matched, and how many of them are gone."""

    matched: int
    removed: int = Field(description="0 with `dry_run`; one that beats meanwhile stays.")
    agent_ids: list[str] = Field(description="The first 100 who matched.")
    dry_run: bool
    server_time: float
