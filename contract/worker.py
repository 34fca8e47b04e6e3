"""A worker: what it sends, and what the roster says of it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import with_default_schema

from contract.vocabulary import (
    BEAT_SECONDS,
    MAX_CPU_PCT,
    MAX_INTEGER,
    MAX_TEXT,
    MAX_TIME_SECONDS,
    TEXT_PATTERN,
    Reason,
    Status,
)


def whole(value: Any) -> Any:
    """JSON knows one kind of number: 3.0 is the integer 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _OrNone:
    """Anything is accepted; what is not of the type becomes None, without a call into Python."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return with_default_schema(handler(source), default=None, on_error="default")

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {}


Text = Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT, pattern=TEXT_PATTERN)]


def _addressable(value: str) -> str:
    """A path segment of dots means another path to every client."""
    if value in (".", ".."):
        raise ValueError("must not be . or ..")
    return value


Name = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=MAX_TEXT, pattern=TEXT_PATTERN)
]
AgentId = Annotated[
    Name, AfterValidator(_addressable), Field(json_schema_extra={"not": {"enum": [".", ".."]}})
]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_INTEGER), BeforeValidator(whole)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=MAX_TIME_SECONDS, allow_inf_nan=False)]
# Of any time, those whose microseconds fit the stores.
Informational = Annotated[
    float | None,
    Field(strict=True, ge=-MAX_TIME_SECONDS, le=MAX_TIME_SECONDS, allow_inf_nan=False),
    _OrNone(),
]
Percent = Annotated[float, Field(strict=True, ge=0, le=MAX_CPU_PCT, allow_inf_nan=False)]


class Heartbeat(BaseModel):
    """What a worker posts; unknown fields are ignored, known ones are checked."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    agent_id: AgentId = Field(description="The worker's identity within its tenant.")
    agent_name: Name = Field(description="The kind of worker; groups, never identifies.")
    status: Status = Field(description="What it does now; `offline` is a leave.")
    active_sessions: Count | None = Field(None, description="Sessions in hand; absent means 0.")
    version: Text | None = None
    project: Text | None = None
    tenant_id: Any = Field(None, description="Advisory; never read. The key decides the tenant.")
    region: Text | None = None
    host: Text | None = None
    started_at: Seconds | None = Field(
        None, description="When the process started, epoch seconds by its own clock."
    )
    ts: Informational = Field(
        None, description="The client's clock, informational; it never drives liveness."
    )
    dispatch_name: Text | None = None
    memory_rss_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    cpu_pct: Percent | None = None


class Accepted(BaseModel):
    """The answer to a beat that is committed."""

    status: str = Field("accepted", pattern="^accepted$")
    server_time: float = Field(description="The beat's own stamp, epoch seconds.")
    next_beat_seconds: int = BEAT_SECONDS


class Worker(BaseModel):
    """One worker, as it is at the moment of reading."""

    agent_id: str
    agent_name: str
    status: Status = Field(description="`offline` once silent for more than 45 s, or left.")
    reason: Reason = Field(description="Why it has that status.")
    active_sessions: int = Field(description="0 while offline.")
    project: str | None
    region: str | None
    version: str | None
    host: str | None
    dispatch_name: str | None
    started_at: float | None
    ts: float | None
    memory_rss_bytes: int | None
    memory_total_bytes: int | None
    memory_pct: float | None
    cpu_pct: float | None
    first_seen: float
    last_seen: float = Field(description="The collector's stamp of the newest beat.")
    age_seconds: float = Field(description="server_time - last_seen, never below 0.")
    conflict: bool = Field(description="Two processes beat under this id.")


class RecentGap(BaseModel):
    """A time in which no collector listened: who reads as lost may be alive."""

    began_at: float
    ended_at: float


class Roster(BaseModel):
    """A tenant's workers, or one page of them."""

    workers: list[Worker]
    server_time: float
    next_cursor: str | None = Field(description="Where the next page begins; null on the last.")
    recent_gap: RecentGap | None = Field(description="The collectors' newest gap, for 60 s.")
