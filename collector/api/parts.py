"""What the doors need of the running collector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collector.clock import Clock
from collector.events import Feed
from collector.gaps import Listener
from collector.intake import Intake
from collector.keys import Keyring
from collector.metrics import Metrics
from collector.quotas import Quotas
from collector.retention import Retention
from collector.sessions import Sessions
from collector.store.protocol import Store
from collector.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Parts:
    store: Store
    clock: Clock
    metrics: Metrics
    keyring: Keyring
    sessions: Sessions
    intake: Intake
    listener: Listener
    sweep: Sweep
    feed: Feed
    quotas: Quotas
    retention: Retention
    # How long a browser stays signed in, in microseconds.
    session_lasts: int

    @staticmethod
    def of(scope: Any) -> Parts:
        """Those of the app that a request, or its ASGI scope, is for."""
        parts: Parts = scope["app"].state.parts
        return parts
