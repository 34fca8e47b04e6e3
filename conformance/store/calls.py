"""Calls that any store takes, as values, and the small domains that they are drawn from.

What is drawn names no tenant and no time of its own: a place and an offset, so that a failing
example reads the same whenever it is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st

from collector.errors import CollectorError
from collector.store.protocol import Store
from collector.values import Beat

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
DAY = 86_400 * SECOND
NO_GAP = 2**63 - 1
_examples = count()

# Around every edge of the contract: the TTL, a collector's gap, a stamp ahead, and equal stamps.
STEPS = st.sampled_from([0, 0, 0, 1, *(s * SECOND for s in (5, 15, 15, 45, 60)), 45 * SECOND + 1])
# Alike but for their case, their width or their plane: what a wrong collation takes for one or
# sorts otherwise than by code point.
AGENTS = ("w", "W", "é", "ｗ", "𝔴")
VARIATIONS = st.sampled_from(
    [
        ("status", "busy"),
        ("status", "offline"),
        ("status", "offline"),
        ("active_sessions", 1),
        ("active_sessions", 2**63 - 1),
        ("agent_name", "Reception"),
        ("project", "LOBBY"),
        ("project", None),
        ("region", "fra"),
        ("version", "2.0"),
        ("host", "host-2"),
        ("dispatch_name", "漢字"),
        ("started_at", None),
        ("started_at", START),
        ("started_at", START),
        ("started_at", START + 1),
        ("ts", -1),
        ("memory_rss_bytes", 1),
        ("memory_total_bytes", 2**63 - 1),
        ("cpu_pct", 12.5),
    ]
)

Said = tuple[tuple[str, Any], ...]
# Beats are mostly alike, so that what differs is seen to be a change.
SAID: st.SearchStrategy[Said] = st.lists(VARIATIONS, max_size=2).map(tuple)


@dataclass(frozen=True)
class Example:
    """Tenants that no example before had, and a day that none had reached."""

    n: int = field(default_factory=lambda: next(_examples))

    @property
    def start(self) -> int:
        return START + self.n * DAY

    def tenant(self, place: int) -> str:
        return f"example-{self.n}-{place}"


@dataclass(frozen=True)
class Sent:
    """A beat to be: of which worker, how far off the clock, and in what it is not like the rest."""

    place: tuple[int, str]
    off: int
    said: Said

    def beat(self, example: Example, now: int) -> Beat:
        tenant, agent_id = self.place
        fields: dict[str, Any] = {
            "tenant_id": example.tenant(tenant),
            "agent_id": agent_id,
            "agent_name": "reception",
            "status": "idle",
            "active_sessions": 0,
            "project": "lobby",
            "started_at": START - 1,
            "last_seen": now + self.off,
        }
        return Beat(**{**dict.fromkeys(Beat._fields), **fields, **dict(self.said)})


@dataclass(frozen=True)
class Call:
    """One method and what it is called with."""

    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    async def on(self, store: Store) -> object:
        """What the store answers; an error of its own is an answer too."""
        try:
            return await getattr(store, self.method)(*self.args, **self.kwargs)
        except CollectorError as error:
            return type(error)


def call(method: str, *args: Any, **kwargs: Any) -> Call:
    return Call(method, args, kwargs)


def sent(
    places: st.SearchStrategy[tuple[int, str]], offs: st.SearchStrategy[int]
) -> st.SearchStrategy[Sent]:
    return st.builds(Sent, places, offs, SAID)
