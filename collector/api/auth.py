"""The one way in: `Authorization: Bearer vk_…`, and the scope that a door asks for."""

from __future__ import annotations

from collections.abc import Iterable

from collector.api.parts import Parts
from collector.errors import MissingScope, Unauthenticated
from collector.logs import caller
from collector.values import Principal
from contract.vocabulary import Scope

Headers = Iterable[tuple[bytes, bytes]]


async def require(parts: Parts, headers: Headers, scope: Scope) -> Principal:
    """The caller, who holds `scope`."""
    principal = await parts.keyring.identify(_bearer(headers))
    caller.set((principal.tenant_id, principal.key_id))
    if scope not in principal.scopes:
        raise MissingScope(f"This key lacks the scope: {scope}")
    return principal


def _bearer(headers: Headers) -> str:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and key.strip():
                return key.strip()
            break
    raise Unauthenticated("Send a key: `Authorization: Bearer vk_…`.")
