"""Keys over HTTP: an admin's own tenant's, and no scope that the admin lacks."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from collector import keys as verbs
from collector.api import auth, queries
from collector.api.bodies import parse, read_body
from collector.api.parts import Parts
from collector.errors import MissingScope, NotFound
from collector.keys import state
from collector.values import SECOND, Key, Principal
from collector.workers import seconds
from contract.key import KeyRequest, RotateRequest

UNKNOWN = "There is no key with this id."


class KeysEndpoint(HTTPEndpoint):
    """`/v1/keys`."""

    async def get(self, request: Request) -> Response:
        """The tenant's keys, oldest first."""
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "admin")
        queries.single(request, ())
        now = parts.clock.now()
        found = await parts.store.keys(principal.tenant_id)
        body = {"keys": [project(key, now) for key in found], "server_time": now / SECOND}
        return Response(to_json(body), media_type="application/json")

    async def post(self, request: Request) -> Response:
        """Mint one."""
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "admin")
        asked = parse(KeyRequest, await read_body(request.receive))
        _require_all(principal, asked.scopes)
        now, lasting = parts.clock.now(), _microseconds(asked.expires_in_seconds)
        await parts.quotas.admit_key(principal.tenant_id, now)
        key, plaintext = await verbs.create(
            parts.store,
            principal.tenant_id,
            asked.scopes,
            now=now,
            name=asked.name,
            expires_at=None if lasting is None else now + lasting,
            by=principal.key_id,
            most=parts.quotas.most_keys,
            off_loop=parts.keyring.mint,
        )
        return _minted(key, plaintext, now)


class KeyEndpoint(HTTPEndpoint):
    """`/v1/keys/{key_id}`."""

    async def delete(self, request: Request) -> Response:
        """Revoke it, for ever; also the one that the caller presents."""
        parts = Parts.of(request)
        principal = await auth.admit(parts, request, "admin")
        tenant_id, key_id = principal.tenant_id, request.path_params["key_id"]
        now = parts.clock.now()
        if not await parts.store.revoke_key(tenant_id, key_id, now=now, by=principal.key_id):
            raise NotFound(UNKNOWN)
        return Response(status_code=204)


async def rotate(request: Request) -> Response:
    """`POST /v1/keys/{key_id}/rotate`: a successor, and an end for the key itself."""
    parts = Parts.of(request)
    principal = await auth.admit(parts, request, "admin")
    asked = parse(RotateRequest, await read_body(request.receive) or b"{}")
    key, now = await _own(parts, principal, request), parts.clock.now()
    _require_all(principal, key.scopes)
    successor, plaintext = await verbs.rotate(
        parts.store,
        key,
        overlap=asked.overlap_seconds * SECOND,
        now=now,
        lasting=_microseconds(asked.expires_in_seconds),
        by=principal.key_id,
        most=parts.quotas.most_keys,
        off_loop=parts.keyring.mint,
    )
    return _minted(successor, plaintext, now)


async def _own(parts: Parts, principal: Principal, request: Request) -> Key:
    """The key of that id; another tenant's is as unknown as none."""
    key = await parts.store.find_key(request.path_params["key_id"])
    if key is None or key.tenant_id != principal.tenant_id:
        raise NotFound(UNKNOWN)
    return key


def _require_all(principal: Principal, scopes: Any) -> None:
    if missing := [scope for scope in scopes if scope not in principal.scopes]:
        raise MissingScope(f"This key lacks the scope: {missing[0]}")


def _microseconds(given: int | None) -> int | None:
    return None if given is None else given * SECOND


def _minted(key: Key, plaintext: str, now: int) -> Response:
    body = {"key": plaintext, **project(key, now)}
    return Response(to_json(body), 201, media_type="application/json")


def project(key: Key, now: int) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "state": state(key, now),
        "created_at": seconds(key.created_at),
        "expires_at": seconds(key.expires_at),
        "last_used_at": seconds(key.last_used_at),
        "revoked_at": seconds(key.revoked_at),
    }
