"""What the doors need of the running collector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from collector.clock import Clock
from collector.events import Feed
from collector.gaps import Listener
from collector.intake import Intake
from collector.keys import Keyring
from collector.metrics import Metrics
from collector.quotas import Quotas
from collector.reads import Reads
from collector.retention import Retention
from collector.sessions import Sessions
from collector.settings import Settings
from collector.store.protocol import Store
from collector.sweep import Sweep
from collector.turns import Turns

# Under this name a connection tells the app when a request's first byte came.
ARRIVED_AT: Final = "arrived_at"


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
    reads: Reads
    # A turn of the event loop begins so many requests; beats that are let in at once are apart.
    requests: Turns
    quotas: Quotas
    retention: Retention
    # How long a browser stays signed in, in microseconds.
    session_lasts: int
    settings: Settings

    @property
    def takes_beats_at_once(self) -> bool:
        """Whether connections let beats in by themselves; else each is the endpoint's."""
        return self.settings.fast_path == "on"

    @staticmethod
    def of(scope: Any) -> Parts:
        """The runtime of the app that serves this request, or its ASGI scope."""
        parts: Parts = scope["app"].state.parts
        return parts


def arrived_at(scope: Any) -> int | None:
    """When the request's first byte came, where the connection is one of ours and told it."""
    moment: int | None = scope.get("state", {}).get(ARRIVED_AT)
    return moment
