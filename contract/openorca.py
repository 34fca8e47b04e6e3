"""The roster in the words of the OpenOrca console, whose names these are."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

NodeStatus = Literal["active", "idle", "offline"]
FleetState = Literal["healthy", "degraded", "critical"]
# Lists that the console wants and that a fleet of workers has nothing for.
Nothing = list[Any]


class _Console(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, serialize_by_alias=True)


class Supports(_Console):
    """What of the console works here."""

    sse: bool
    snapshots: bool
    interventions: bool


class RuntimeInfo(_Console):
    """Who serves the console."""

    runtime: str
    version: str
    language: str
    supports: Supports


class Node(_Console):
    """One worker."""

    id: str = Field(description="The worker's agent_id.")
    name: str
    machine_id: str
    machine_name: str
    status: NodeStatus
    domain: str
    integrations: Nothing
    current_task_id: None
    current_action: str
    memory_usage: float
    uptime: str
    tasks_completed: int
    collaborating_with: Nothing
    intervention_required: bool
    activity_level: int = Field(description="From 0 to 100.")
    loaded_cores: Nothing
    knowledge_contributions: int
    graph_access: str
    active_sessions: int


class Machine(_Console):
    """One host of workers."""

    id: str
    name: str
    os: str
    location: str
    is_online: bool
    last_seen: str


class FleetHealth(_Console):
    """The fleet's figures."""

    total_agents: int
    active_agents: int
    offline_agents: int
    interventions_required: int
    tasks_in_progress: int
    tasks_completed_today: int
    swarms_active: int
    overall_health: FleetState


class Meta(_Console):
    """Of the snapshot itself."""

    runtime: str
    generated_at: AwareDatetime
    connection_status: str


class ConsoleSnapshot(_Console):
    """The whole fleet now."""

    agents: list[Node]
    tasks: Nothing
    action_log: Nothing
    interventions: Nothing
    swarms: Nothing
    machines: list[Machine]
    fleet_health: FleetHealth
    meta: Meta
