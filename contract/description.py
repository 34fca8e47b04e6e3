"""What a collector says of itself."""

from __future__ import annotations

from pydantic import BaseModel, Field

from contract.vocabulary import Status


class Description(BaseModel):
    """Which implementation this is, and what it promises."""

    implementation: str
    version: str
    contract_version: str
    capabilities: list[str] = Field(description="Extended parts of the contract that it keeps.")
    statuses: list[Status]
    beat_seconds: int
    ttl_seconds: int
