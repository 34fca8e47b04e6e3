"""Writes contract/schemas/ from the models: `python -m contract.schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from contract.audit import Audit
from contract.description import Description
from contract.event import Change, Events, Snapshot, Vitals
from contract.gap import Gaps
from contract.health import Health, Readiness
from contract.key import KeyRequest, Keys, NewKey, RotateRequest
from contract.openorca import ConsoleSnapshot, RuntimeInfo
from contract.presence import Presence
from contract.problem import Problem
from contract.removal import Removal
from contract.session import CurrentSession, Sessions
from contract.summary import Summary
from contract.timeline import Timeline
from contract.worker import Accepted, Heartbeat, Roster, Worker

DIRECTORY = Path(__file__).parent / "schemas"
_MODELS: dict[str, type[BaseModel]] = {
    "heartbeat": Heartbeat,
    "accepted": Accepted,
    "worker": Worker,
    "roster": Roster,
    "key-request": KeyRequest,
    "rotate-request": RotateRequest,
    "new-key": NewKey,
    "keys": Keys,
    "current-session": CurrentSession,
    "sessions": Sessions,
    "audit": Audit,
    "removal": Removal,
    "timeline": Timeline,
    "summary": Summary,
    "presence": Presence,
    "gaps": Gaps,
    "event-snapshot": Snapshot,
    "event-change": Change,
    "event-vitals": Vitals,
    "events": Events,
    "openorca-runtime-info": RuntimeInfo,
    "openorca-snapshot": ConsoleSnapshot,
    "description": Description,
    "health": Health,
    "readiness": Readiness,
    "problem": Problem,
}


def documents() -> dict[str, str]:
    """Each schema's file name and the text that belongs in it."""
    return {f"{name}.json": _text(model) for name, model in _MODELS.items()}


def _text(model: type[BaseModel]) -> str:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(mode="validation"),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in documents().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
