"""What each route takes and answers: the one table that the API's description is made of.

The routes themselves stand in `collector.app.ROUTES`; the shapes in the contract's models, and the
limits of parameters in its vocabulary.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, TypeAdapter

from collector.api import console
from contract.audit import Audit
from contract.description import Description
from contract.event import Change, Events, Snapshot, Vitals
from contract.gap import Gaps
from contract.health import Health, Readiness
from contract.key import KeyRequest, Keys, NewKey, RotateRequest
from contract.openorca import ConsoleSnapshot, RuntimeInfo
from contract.presence import Presence
from contract.removal import Removal
from contract.session import CurrentSession, Sessions
from contract.summary import Summary
from contract.timeline import Timeline
from contract.vocabulary import (
    AUDIT_PAGE,
    KEY_ALPHABET,
    KEY_ID_LENGTH,
    MAX_AUDIT_PAGE,
    MAX_INTEGER,
    MAX_LAST,
    MAX_PAGE,
    MAX_PRESENCE_STEPS,
    MAX_STEP_SECONDS,
    MAX_TIME_SECONDS,
    MAX_WAIT_SECONDS,
    SESSION_ID_PATTERN,
    STATUSES,
    Scope,
)
from contract.worker import Accepted, AgentId, Heartbeat, Name, Roster, Text, Worker

Schema = dict[str, Any]
Door = tuple[str, str]
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
# A bearer, or a browser's cookie.
Way = Literal["key", "session"]


class Parameter(NamedTuple):
    """One parameter; `example` is what the documentation shows."""

    name: str
    description: str
    schema: Schema
    place: Literal["query", "path", "header"] = "query"
    example: Any = None


class Answer(NamedTuple):
    """A success: its body's model, or none, and its media type."""

    status: int
    description: str
    model: type[BaseModel] | None = None
    media_type: str | tuple[str, ...] | None = JSON


class Operation(NamedTuple):
    """One method of one route."""

    group: str
    summary: str
    scope: Scope | None
    answer: Answer
    parameters: tuple[Parameter, ...] = ()
    body: type[BaseModel] | None = None
    body_example: Schema | None = None
    body_is_required: bool = True
    # Codes of the contract's table, past those that every route may answer.
    refusals: tuple[str, ...] = ()
    # What its scope may be shown by.
    opened_by: tuple[Way, ...] = ("key", "session")


def _number(most: float) -> Schema:
    return {"type": "number", "minimum": 0, "maximum": most}


def _whole(least: int, most: int, **more: Any) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


_NAME, _TEXT = TypeAdapter(Name).json_schema(), TypeAdapter(Text).json_schema()
_TIME = _number(MAX_TIME_SECONDS)
_STATUSES: Schema = {
    "type": "array",
    "items": {"type": "string", "enum": list(STATUSES)},
    "minItems": 1,
}
_KEY_ID: Schema = {"type": "string", "pattern": rf"^[{KEY_ALPHABET}]{{{KEY_ID_LENGTH}}}$"}

AGENT_ID = Parameter(
    "agent_id",
    "The worker, percent-encoded as one path segment.",
    TypeAdapter(AgentId).json_schema(),
    "path",
    "worker-host-1",
)
KEY_ID = Parameter("key_id", "The key's first characters after `vk_`.", _KEY_ID, "path", "ABCD2345")
SESSION_ID = Parameter(
    "session_id",
    "The session's `id`.",
    {"type": "string", "pattern": f"^{SESSION_ID_PATTERN}$"},
    "path",
    "ABCDEFGH2345",
)
STATUS = Parameter(
    "status",
    "As a reader sees it; given several times, any of them.",
    _STATUSES,
    example=["offline"],
)
AGENT_NAME = Parameter("agent_name", "Workers with exactly this name.", _NAME)
PROJECT = Parameter("project", "Workers of exactly this project.", _TEXT)
REGION = Parameter("region", "Workers in exactly this region.", _TEXT)
SEEN_WITHIN = Parameter("seen_within", "Whose last beat is at most this many seconds ago.", _TIME)
UNSEEN_FOR = Parameter(
    "unseen_for", "Whose last beat is more than this many seconds ago.", _TIME, example=86400
)
LIMIT = Parameter("limit", "A page of at most so many workers.", _whole(1, MAX_PAGE), example=100)
CURSOR = Parameter(
    "cursor", "The `next_cursor` of the page before; only with `limit`.", {"type": "string"}
)
DRY_RUN = Parameter("dry_run", "Only say who would be removed.", {"type": "boolean"}, example=True)
SINCE = Parameter("since", "Epoch seconds, as a plain decimal number.", _TIME)
PATH = Parameter(
    "path",
    "A file of the console.",
    {"type": "string", "enum": sorted(console.files())},
    "path",
    example="app.js",
)
STEPS = Parameter("steps", "How many steps.", _whole(1, MAX_PRESENCE_STEPS), example=60)
STEP_SECONDS = Parameter(
    "step_seconds", "How long each step is.", _whole(1, MAX_STEP_SECONDS), example=60
)
AFTER = Parameter(
    "after", "A cursor of the feed; any other text gets a snapshot.", {"type": "string"}
)
LAST_EVENT_ID = Parameter(
    "Last-Event-ID", "A cursor; it goes before `after`.", {"type": "string"}, "header"
)
WAIT = Parameter(
    "wait", "Seconds to wait when there is nothing yet.", _number(MAX_WAIT_SECONDS), example=10
)
LAST = Parameter(
    "last",
    "Go back so many lines from the newest; `after` is then not looked at.",
    _whole(0, MAX_LAST),
)
ACTS = Parameter("limit", "So many acts.", _whole(1, MAX_AUDIT_PAGE, default=AUDIT_PAGE))
BEFORE = Parameter("before", "Acts with a lower id.", _whole(1, MAX_INTEGER))
MATCHING = (AGENT_NAME, PROJECT, REGION)

# What a server-sent event's data may be, by the route.
FRAMES: Final[tuple[type[BaseModel], ...]] = (Snapshot, Change, Vitals)

WORKERS, HISTORY, FEED = "Workers", "History", "The feed"
OPERATORS, SESSIONS = "Keys and audit", "Browsers"
CONSOLE, SERVER = "The OpenOrca console", "The server"

OPERATIONS: Final[dict[Door, Operation]] = {
    ("POST", "/v1/agents/heartbeat"): Operation(
        WORKERS,
        "A worker's beat; sent every 15 s.",
        "ingest",
        Answer(202, "The beat is committed.", Accepted),
        body=Heartbeat,
        body_example={"agent_id": "worker-host-1", "agent_name": "myvoiceagents", "status": "idle"},
        refusals=("malformed_json", "too_large", "invalid_field", "quota_exceeded"),
        opened_by=("key",),
    ),
    ("GET", "/v1/agents"): Operation(
        WORKERS,
        "The roster, whole or by pages.",
        "read",
        Answer(200, "The tenant's workers.", Roster),
        (STATUS, *MATCHING, SEEN_WITHIN, LIMIT, CURSOR),
        refusals=("invalid_field", "too_many_reads"),
    ),
    ("DELETE", "/v1/agents"): Operation(
        WORKERS,
        "Remove all who match; at least one filter has to be given.",
        "admin",
        Answer(200, "Who matched, and how many are gone.", Removal),
        (STATUS, *MATCHING, UNSEEN_FOR, DRY_RUN),
        refusals=("invalid_field",),
    ),
    ("GET", "/v1/agents/{agent_id}"): Operation(
        WORKERS,
        "One worker.",
        "read",
        Answer(200, "The worker as it is now.", Worker),
        (AGENT_ID,),
        refusals=("not_found",),
    ),
    ("DELETE", "/v1/agents/{agent_id}"): Operation(
        WORKERS,
        "Remove one worker; its next beat makes it anew.",
        "admin",
        Answer(204, "It is removed.", media_type=None),
        (AGENT_ID,),
        refusals=("not_found",),
    ),
    ("GET", "/v1/agents/{agent_id}/timeline"): Operation(
        HISTORY,
        "One worker's spells, transitions and uptime; of 7 days if `since` is not given.",
        "read",
        Answer(200, "What is known of it.", Timeline),
        (AGENT_ID, SINCE),
        refusals=("not_found", "invalid_field"),
    ),
    ("GET", "/v1/summary"): Operation(
        WORKERS,
        "Workers and sessions in numbers.",
        "read",
        Answer(200, "By status and by name.", Summary),
        refusals=("invalid_field",),
    ),
    ("GET", "/v1/presence"): Operation(
        HISTORY,
        "How many workers were online, step by step up to now; the last hour in minutes.",
        "read",
        Answer(200, "One number for each step.", Presence),
        (STEPS, STEP_SECONDS),
        refusals=("invalid_field",),
    ),
    ("GET", "/v1/gaps"): Operation(
        HISTORY,
        "When no collector listened; of 24 hours if `since` is not given.",
        "read",
        Answer(200, "The store's gaps, oldest first.", Gaps),
        (SINCE,),
        refusals=("invalid_field",),
    ),
    ("GET", "/v1/keys"): Operation(
        OPERATORS,
        "The tenant's keys.",
        "admin",
        Answer(200, "Oldest first, never a plaintext.", Keys),
        refusals=("invalid_field",),
    ),
    ("POST", "/v1/keys"): Operation(
        OPERATORS,
        "Make a key.",
        "admin",
        Answer(201, "The key, whose plaintext is shown only now.", NewKey),
        body=KeyRequest,
        body_example={"scopes": ["read"], "name": "console"},
        refusals=("malformed_json", "too_large", "invalid_field", "quota_exceeded"),
    ),
    ("DELETE", "/v1/keys/{key_id}"): Operation(
        OPERATORS,
        "Revoke a key, for ever.",
        "admin",
        Answer(204, "It is revoked.", media_type=None),
        (KEY_ID,),
        refusals=("not_found",),
    ),
    ("POST", "/v1/keys/{key_id}/rotate"): Operation(
        OPERATORS,
        "A successor of a key, once; the key itself ends after an overlap.",
        "admin",
        Answer(201, "The successor, whose plaintext is shown only now.", NewKey),
        (KEY_ID,),
        body=RotateRequest,
        body_example={"overlap_seconds": 3600},
        body_is_required=False,
        refusals=(
            "malformed_json",
            "not_found",
            "not_active",
            "too_large",
            "invalid_field",
            "quota_exceeded",
        ),
    ),
    ("POST", "/v1/sessions"): Operation(
        SESSIONS,
        "Sign a browser in: the answer sets its cookie, which then stands for the key.",
        "read",
        Answer(201, "The new session; its token is in the cookie alone.", CurrentSession),
        opened_by=("key",),
    ),
    ("GET", "/v1/sessions"): Operation(
        SESSIONS,
        "Where the caller's key is signed in.",
        "read",
        Answer(200, "The sessions of that key, newest first.", Sessions),
        refusals=("invalid_field",),
    ),
    ("GET", "/v1/sessions/current"): Operation(
        SESSIONS,
        "The cookie's own session.",
        "read",
        Answer(200, "Who is signed in here.", CurrentSession),
        refusals=("invalid_field",),
        opened_by=("session",),
    ),
    ("DELETE", "/v1/sessions/current"): Operation(
        SESSIONS,
        "Sign out here.",
        "read",
        Answer(204, "It is over, and the cookie is cleared.", media_type=None),
        opened_by=("session",),
    ),
    ("DELETE", "/v1/sessions/{session_id}"): Operation(
        SESSIONS,
        "Sign out wherever that session is; its streams end within 2 s.",
        "read",
        Answer(204, "It is over.", media_type=None),
        (SESSION_ID,),
        refusals=("not_found",),
    ),
    ("GET", "/v1/audit"): Operation(
        OPERATORS,
        "Who did what.",
        "admin",
        Answer(200, "Acts, newest first.", Audit),
        (ACTS, BEFORE),
        refusals=("invalid_field",),
    ),
    ("GET", "/events"): Operation(
        FEED,
        "An endless stream: a snapshot, then every change; `/asyncapi.json` describes its events.",
        "read",
        Answer(200, "Server-sent events.", media_type=EVENT_STREAM),
        (AFTER, *MATCHING, LAST_EVENT_ID),
        refusals=("invalid_field", "too_many_subscribers"),
    ),
    ("GET", "/v1/events"): Operation(
        FEED,
        "The same by long poll.",
        "read",
        Answer(200, "What came since, or a snapshot.", Events),
        (AFTER, WAIT, LAST, *MATCHING),
        refusals=("invalid_field", "too_many_reads", "too_many_subscribers"),
    ),
    ("GET", "/openorca/runtime-info"): Operation(
        CONSOLE, "What of that console works here.", None, Answer(200, "That.", RuntimeInfo)
    ),
    ("GET", "/openorca/snapshot"): Operation(
        CONSOLE,
        "The whole fleet.",
        "read",
        Answer(200, "The fleet now.", ConsoleSnapshot),
        refusals=("too_many_reads",),
    ),
    ("GET", "/openorca/events"): Operation(
        CONSOLE,
        "An endless stream: the fleet, then every change.",
        "read",
        Answer(200, "Server-sent events, unnamed.", media_type=EVENT_STREAM),
        refusals=("too_many_subscribers",),
    ),
    ("GET", "/v1/contract"): Operation(
        SERVER, "Which implementation this is.", None, Answer(200, "What it keeps.", Description)
    ),
    ("GET", "/healthz"): Operation(
        SERVER, "Whether the process runs.", None, Answer(200, "It does.", Health)
    ),
    ("GET", "/readyz"): Operation(
        SERVER,
        "Whether requests should be sent here.",
        None,
        Answer(200, "They should.", Readiness),
        refusals=("not_ready",),
    ),
    ("GET", "/metrics"): Operation(
        SERVER,
        "Counters in Prometheus' text format.",
        None,
        Answer(200, "The counters.", media_type="text/plain"),
        refusals=("unauthenticated", "not_found"),
    ),
    ("GET", "/openapi.json"): Operation(
        SERVER, "This description, in OpenAPI 3.1.", None, Answer(200, "The document.")
    ),
    ("GET", "/asyncapi.json"): Operation(
        SERVER, "The events of `/events`, in AsyncAPI 3.", None, Answer(200, "The document.")
    ),
    ("GET", "/docs"): Operation(
        SERVER,
        "This description, for people.",
        None,
        Answer(200, "A page that needs nothing else.", media_type="text/html"),
    ),
    ("GET", "/"): Operation(
        SERVER, "The console.", None, Answer(200, "The page.", media_type="text/html")
    ),
    ("GET", "/console/{path}"): Operation(
        SERVER,
        "What the console loads.",
        None,
        Answer(200, "A page, a module, a style or an image.", media_type=console.KINDS),
        (PATH,),
        refusals=("not_found",),
    ),
}
