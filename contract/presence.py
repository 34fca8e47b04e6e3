"""How many workers were there, over a time."""

from __future__ import annotations

from pydantic import BaseModel, Field

from contract.gap import Gap


class Presence(BaseModel):
    """Equal steps up to now, oldest first."""

    since: float = Field(description="Where the first step begins.")
    step_seconds: int
    server_time: float = Field(description="Where the last step ends.")
    online: list[int] = Field(description="Workers that were online at some moment of each step.")
    gaps: list[Gap] = Field(description="The collectors' own, in that time.")
