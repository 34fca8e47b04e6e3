"""What probes are told."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """The process runs."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """The store answers and takes beats, its schema is current, and the clocks agree."""

    status: Literal["ready"]
