"""What travels between workers, collectors and consoles, and what it means.

The words are here at once; a model is loaded, and pydantic with it, when it is first asked for.
So is the producer, `register_worker`, which needs the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contract.vocabulary import (
    BEAT_SECONDS,
    CONTRACT_VERSION,
    SCOPES,
    STATUSES,
    TTL_SECONDS,
)

if TYPE_CHECKING:
    from contract.problem import FieldError, Problem
    from contract.producer import RegisteredWorker, register_worker
    from contract.worker import Accepted, Heartbeat, Roster, Worker

__all__ = [
    "BEAT_SECONDS",
    "CONTRACT_VERSION",
    "SCOPES",
    "STATUSES",
    "TTL_SECONDS",
    "Accepted",
    "FieldError",
    "Heartbeat",
    "Problem",
    "RegisteredWorker",
    "Roster",
    "Worker",
    "register_worker",
]

_LATER = {
    "Accepted": "contract.worker",
    "FieldError": "contract.problem",
    "Heartbeat": "contract.worker",
    "Problem": "contract.problem",
    "RegisteredWorker": "contract.producer",
    "Roster": "contract.worker",
    "Worker": "contract.worker",
    "register_worker": "contract.producer",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
