"""`collector keys`: mint, list and revoke keys, on the store itself."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from typing import Any, cast

import click

from collector import keys as verbs
from collector.cli import opening
from collector.cli.invocation import command
from collector.cli.tables import table
from collector.clock import SystemClock
from collector.errors import NotFound
from collector.store.open import store_name
from collector.values import SECOND, Key
from contract.vocabulary import (
    DEFAULT_TENANT,
    KEY_ID_LENGTH,
    KEY_PREFIX,
    SCOPES,
    TENANT_PATTERN,
    Scope,
)


def _tenant(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
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
"""
)
@click.option("--tenant", required=True, callback=_tenant, help="Whose key; made if new.")
@click.option("--scopes", required=True, callback=_scopes, help="Some of ingest,read,admin.")
@click.option("--name", help="A note for people: where this key is used.")
@click.option("--json", "as_json", is_flag=True, help="One object; `key` is the plaintext.")
def create(tenant: str, scopes: tuple[Scope, ...], name: str | None, as_json: bool) -> None:
    """Mint a key. Its plaintext is shown now and never again."""
    key, plaintext = asyncio.run(_create(tenant, scopes, name))
    if as_json:
        click.echo(json.dumps({"key": plaintext, **_facts(key)}))
        return
    click.echo(plaintext)
    where = store_name(opening.settings())
    click.secho(
        f"Key {key.id} of tenant {tenant} in {where}: {', '.join(key.scopes)}. Shown only now.",
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
@click.option("--tenant", callback=_tenant, help="Only this tenant's.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def list_keys(tenant: str | None, as_json: bool) -> None:
    """List keys: never their plaintext, which nobody has."""
    found = [_facts(key) for key in asyncio.run(_every(tenant))]
    if as_json:
        click.echo(json.dumps(found))
        return
    table(
        ("ID", "TENANT", "SCOPES", "CREATED", "STATE", "NAME"),
        [
            (
                key["id"],
                key["tenant"],
                ",".join(key["scopes"]),
                f"{datetime.fromtimestamp(key['created_at'], UTC):%Y-%m-%d %H:%M}",
                "revoked" if key["revoked_at"] else "active",
                key["name"] or "",
            )
            for key in found
        ],
        empty=f"No keys: {command()} keys create --tenant {tenant or DEFAULT_TENANT} "
        "--scopes ingest,read",
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
    key_id = key_id.removeprefix(KEY_PREFIX)[:KEY_ID_LENGTH]
    asyncio.run(_revoke(key_id))
    click.secho(f"Key {key_id} is revoked.", fg="green")


async def _create(tenant: str, scopes: tuple[Scope, ...], name: str | None) -> tuple[Key, str]:
    async with opening.opened(opening.settings()) as store:
        return await verbs.create(store, tenant, scopes, now=SystemClock().now(), name=name)


async def _every(tenant: str | None) -> list[Key]:
    async with opening.opened(opening.settings(), existing=True) as store:
        return await store.keys(tenant)


async def _revoke(key_id: str) -> None:
    async with opening.opened(opening.settings(), existing=True) as store:
        if not await store.revoke_key(key_id, now=SystemClock().now()):
            raise NotFound(f"there is no key {key_id}; `{command()} keys list` shows them")


def _facts(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant": key.tenant_id,
        "scopes": list(key.scopes),
        "name": key.name,
        "created_at": key.created_at / SECOND,
        "revoked_at": None if key.revoked_at is None else key.revoked_at / SECOND,
    }
