"""`collector keys`: mint, list and revoke keys, on the store itself."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any, cast

import click

from collector import keys as verbs
from collector.cli import opening
from collector.cli.durations import duration
from collector.cli.invocation import command
from collector.cli.tables import ago, table
from collector.clock import SystemClock
from collector.errors import NotActive, NotFound
from collector.store.open import store_name
from collector.values import SECOND, Key
from collector.workers import seconds
from contract.vocabulary import (
    DEFAULT_TENANT,
    KEY_ID_LENGTH,
    KEY_PREFIX,
    OLD_KEY_DAYS,
    SCOPES,
    TENANT_PATTERN,
    Scope,
)


def tenant_name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and re.fullmatch(TENANT_PATTERN, value) is None:
        raise click.BadParameter("1 to 63 of a-z, 0-9 and -")
    return value


def _scopes(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[Scope, ...]:
    asked = [scope.strip() for scope in value.split(",")]
    wrong = [scope for scope in asked if scope not in SCOPES]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not one of {', '.join(SCOPES)}")
    return cast("tuple[Scope, ...]", tuple(asked))


@click.group(
    epilog="""
\b
Examples:
  collector keys create --tenant acme --scopes ingest,read
  collector keys list --tenant acme
  collector keys rotate ABCD2345 --overlap 1h
  collector keys revoke ABCD2345
"""
)
def keys() -> None:
    """Keys open one tenant's doors; a running collector notices changes within two seconds."""


@keys.command(
    epilog="""
\b
Examples:
  collector keys create --tenant acme --scopes ingest,read
  collector keys create --tenant acme --scopes ingest --name "the lobby's workers" --json
  collector keys create --tenant acme --scopes read --expires-in 90d
"""
)
@click.option("--tenant", required=True, callback=tenant_name, help="Whose key; made if new.")
@click.option("--scopes", required=True, callback=_scopes, help="Some of ingest,read,admin.")
@click.option("--name", help="A note for people: where this key is used.")
@click.option("--expires-in", callback=duration, help="Such as 12h or 90d; never if not given.")
@click.option("--json", "as_json", is_flag=True, help="One object; `key` is the plaintext.")
def create(
    tenant: str,
    scopes: tuple[Scope, ...],
    name: str | None,
    expires_in: int | None,
    as_json: bool,
) -> None:
    """Mint a key. Its plaintext is shown now and never again."""
    key, plaintext = asyncio.run(_create(tenant, scopes, name, expires_in))
    _show_minted(key, plaintext, as_json)


@keys.command(
    epilog="""
\b
Examples:
  collector keys rotate ABCD2345
  collector keys rotate ABCD2345 --overlap 1d --json
  collector keys rotate ABCD2345 --expires-in 90d
"""
)
@click.argument("key_id")
@click.option(
    "--overlap", default="1h", show_default=True, callback=duration, help="Both work so long."
)
@click.option(
    "--expires-in", callback=duration, help="Such as 90d; as long as the key itself if not given."
)
@click.option("--json", "as_json", is_flag=True, help="One object; `key` is the plaintext.")
def rotate(key_id: str, overlap: int, expires_in: int | None, as_json: bool) -> None:
    """Mint a successor for a key, which itself ends after the overlap."""
    successor, plaintext = asyncio.run(_rotate(_public_part(key_id), overlap, expires_in))
    _show_minted(successor, plaintext, as_json)


def _show_minted(key: Key, plaintext: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"key": plaintext, **_facts(key)}))
        return
    click.echo(plaintext)
    where = store_name(opening.settings())
    click.secho(
        f"Key {key.id} of tenant {key.tenant_id} in {where}: {', '.join(key.scopes)}. "
        "Shown only now.",
        err=True,
        fg="green",
    )


@keys.command(
    "list",
    epilog="""
\b
Examples:
  collector keys list
  collector keys list --tenant acme --json
""",
)
@click.option("--tenant", callback=tenant_name, help="Only this tenant's.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def list_keys(tenant: str | None, as_json: bool) -> None:
    """List keys: never their plaintext, which nobody has."""
    found = [_facts(key) for key in asyncio.run(_every(tenant))]
    if as_json:
        click.echo(json.dumps(found))
        return
    table(
        ("ID", "TENANT", "SCOPES", "CREATED", "LAST USED", "EXPIRES", "STATE", "NAME"),
        [_row(key) for key in found],
        empty=f"No keys: {command()} keys create --tenant {tenant or DEFAULT_TENANT} "
        "--scopes ingest,read",
        whole=("ID", "TENANT", "SCOPES"),
    )
    _warn_of_old_ones(found)


def _row(key: dict[str, Any]) -> tuple[str, ...]:
    return (
        key["id"],
        key["tenant"],
        ",".join(key["scopes"]),
        ago(max(0, time.time() - key["created_at"])),
        "never" if key["last_used_at"] is None else ago(max(0, time.time() - key["last_used_at"])),
        "never" if key["expires_at"] is None else ago(time.time() - key["expires_at"]),
        key["state"],
        key["name"] or "",
    )


def _warn_of_old_ones(found: list[dict[str, Any]]) -> None:
    oldest = time.time() - OLD_KEY_DAYS * 86400
    old = [key["id"] for key in found if key["state"] == "active" and key["created_at"] < oldest]
    if old:
        click.secho(
            f"Older than {OLD_KEY_DAYS} days: {', '.join(old)}. "
            f"Rotate such a key with: {command()} keys rotate {old[0]}",
            fg="yellow",
            err=True,
        )


@keys.command(
    epilog="""
\b
Examples:
  collector keys revoke ABCD2345
"""
)
@click.argument("key_id")
def revoke(key_id: str) -> None:
    """Revoke the key with this id, for ever. The whole key will do, and is not repeated."""
    key_id = _public_part(key_id)
    asyncio.run(_revoke(key_id))
    click.secho(f"Key {key_id} is revoked.", fg="green")


def _public_part(key: str) -> str:
    return key.removeprefix(KEY_PREFIX)[:KEY_ID_LENGTH]


async def _create(
    tenant: str, scopes: tuple[Scope, ...], name: str | None, lasting: int | None
) -> tuple[Key, str]:
    now = SystemClock().now()
    expires_at = None if lasting is None else now + lasting * SECOND
    async with opening.opened(opening.settings()) as store:
        return await verbs.create(store, tenant, scopes, now=now, name=name, expires_at=expires_at)


async def _rotate(key_id: str, overlap: int, lasting: int | None) -> tuple[Key, str]:
    now = SystemClock().now()
    async with opening.opened(opening.settings(), existing=True) as store:
        key = await store.find_key(key_id)
        if key is None:
            raise _unknown(key_id)
        if not key.is_active(now):
            raise NotActive(
                f"key {key_id} is {verbs.state(key, now)}; mint another with: "
                f"{command()} keys create"
            )
        return await verbs.rotate(
            store,
            key,
            overlap=overlap * SECOND,
            now=now,
            lasting=None if lasting is None else lasting * SECOND,
        )


def _unknown(key_id: str) -> NotFound:
    return NotFound(f"there is no key {key_id}; `{command()} keys list` shows them")


async def _every(tenant: str | None) -> list[Key]:
    async with opening.opened(opening.settings(), existing=True) as store:
        return await store.keys(tenant)


async def _revoke(key_id: str) -> None:
    async with opening.opened(opening.settings(), existing=True) as store:
        if not await verbs.revoke(store, key_id, now=SystemClock().now()):
            raise _unknown(key_id)


def _facts(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant": key.tenant_id,
        "scopes": list(key.scopes),
        "name": key.name,
        "state": verbs.state(key, SystemClock().now()),
        "created_at": seconds(key.created_at),
        "expires_at": seconds(key.expires_at),
        "last_used_at": seconds(key.last_used_at),
        "revoked_at": seconds(key.revoked_at),
    }
