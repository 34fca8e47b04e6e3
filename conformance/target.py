"""What the suite is pointed at: an address, some keys, and what it says it can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx2

from conformance.clocks import Clock, RealClock
from conformance.sockets import is_proxied

# Who these keys belong to is the target's own affair; the suite needs two tenants that differ.
OPTIONAL_KEYS = ("ingest", "read", "tenantless")
UNKNOWN = "unknown"


class Unreachable(Exception):
    """Nothing answers there."""


class Refused(Exception):
    """The keys do not do."""


class Control(Protocol):
    """What only a target of our own offers: its time, its store and its process in our hands."""

    async def move(self, micros: int) -> None:
        """Let time pass while the collector listens."""
        ...

    async def jump(self, micros: int) -> None:
        """Set the clock forth or back; the collector did not listen meanwhile."""
        ...

    async def listen(self) -> None:
        """Let the collector record that it listens, and sweep."""
        ...

    async def mint(self, tenant: str, *scopes: str) -> str:
        """A new key."""
        ...

    async def revoke(self, key: str) -> None: ...

    async def prune(self, keep: int) -> None:
        """Cut every log down to so many lines."""
        ...

    async def retire(self) -> None:
        """Forget what is old by now."""
        ...

    async def store(self, how: str) -> None:
        """`stall`: commits wait. `fail`: the store is out of reach. `work`: as before."""
        ...

    async def restart(self) -> None:
        """Kill the process and start another one on the same store."""
        ...


# The capabilities that come with such control.
CONTROLS = ("clock", "minting", "pruning", "gaps control", "stalling", "restart")


def why_not(missing: Sequence[str]) -> str:
    """Why a case that needs these is skipped, and whether the reader can help it."""
    if keys := [each for each in missing if each.endswith(" key")]:
        return f"no {keys[0]} was given: --{keys[0].replace(' ', '-')}"
    if "sockets" in missing:
        return "a proxy stands before the server, and cuts every request anew"
    if any(each in CONTROLS for each in missing):
        return "only a server that the suite itself has started lets it move time, keys and store"
    return f"the server does not claim: {', '.join(missing)}"


@dataclass(frozen=True, slots=True)
class Keys:
    """Two tenants' keys with every scope, and those with less."""

    a: str
    b: str
    ingest: str | None = None
    read: str | None = None
    tenantless: str | None = None

    def all(self) -> list[str]:
        given = (self.a, self.b, self.ingest, self.read, self.tenantless)
        return [key for key in given if key]

    def capabilities(self) -> Iterable[str]:
        return (f"{name} key" for name in OPTIONAL_KEYS if getattr(self, name))


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to be judged."""

    name: str
    url: str
    keys: Keys
    # The name of the second key's tenant, for beats that claim to be its.
    other_tenant: str = "tenant-b"
    clock: Clock = field(default_factory=RealClock)
    control: Control | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What a target says of itself; one that says nothing has no capabilities."""

    implementation: str = UNKNOWN
    version: str = UNKNOWN
    contract_version: str = UNKNOWN
    capabilities: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.implementation} {self.version}, contract {self.contract_version}"


async def describe(target: Target, http: httpx2.AsyncClient) -> Description:
    """Ask it; whether it speaks to the OpenOrca console is asked as that console asks."""
    try:
        said = await http.get("/v1/contract")
        openorca = await http.get("/openorca/runtime-info")
    except httpx2.HTTPError as error:
        raise Unreachable(f"{target.url}: {error or type(error).__name__}") from error
    contract = _object(said)
    named = contract.get("capabilities")
    capabilities = {e for e in named if isinstance(e, str)} if isinstance(named, list) else set()
    capabilities |= {"contract"} if contract else set()
    capabilities |= {"openorca"} if openorca.status_code == 200 else set()
    capabilities |= set(CONTROLS) if target.control else set()
    # Behind a proxy, the suite's own sockets say nothing of the server.
    capabilities |= {"sockets"} if target.control or not is_proxied(target.url) else set()
    return Description(
        implementation=str(contract.get("implementation", UNKNOWN)),
        version=str(contract.get("version", UNKNOWN)),
        contract_version=str(contract.get("contract_version", UNKNOWN)),
        capabilities=frozenset(capabilities).union(target.keys.capabilities()),
    )


def _object(response: httpx2.Response) -> dict[str, Any]:
    if response.status_code != 200:
        return {}
    try:
        said = response.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
