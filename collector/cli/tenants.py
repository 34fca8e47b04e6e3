"""`collector tenants`: whole tenants, on the store itself."""

from __future__ import annotations

import asyncio
import json
import time

import click

from collector.cli import consent, opening
from collector.cli.invocation import command
from collector.cli.keys import tenant_name
from collector.cli.tables import ago, table
from collector.clock import SystemClock
from collector.errors import NotFound
from collector.values import SECOND, Tenant

# Every collector lets go of a revoked key within two seconds, and takes no beat with it then. The
# keys end without this wait too: it is for the beats under way, which would make workers anew.
LETTING_GO_SECONDS = 2.5


@click.group(
    epilog="""
\b
Examples:
  collector tenants list
  collector tenants show acme
  collector tenants remove acme
"""
)
def tenants() -> None:
    """Tenants: who has keys or workers in this store."""


@tenants.command(
    "list",
    epilog="""
\b
Examples:
  collector tenants list
  collector tenants list --json
""",
)
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def list_tenants(as_json: bool) -> None:
    """List all tenants."""
    found = asyncio.run(_every())
    if as_json:
        click.echo(json.dumps([_facts(tenant) for tenant in found]))
        return
    table(
        ("TENANT", "WORKERS", "ACTIVE KEYS", "LAST BEAT"),
        [
            (each.tenant_id, str(each.workers), str(each.active_keys), _since(each.last_seen))
            for each in found
        ],
        empty="No tenants yet: a tenant is made with its first key.",
    )


@tenants.command(
    epilog="""
\b
Examples:
  collector tenants show acme
  collector tenants show acme --json
"""
)
@click.argument("tenant", callback=tenant_name)
@click.option("--json", "as_json", is_flag=True, help="One object.")
def show(tenant: str, as_json: bool) -> None:
    """Show how much the store has of one tenant."""
    held = asyncio.run(_holdings(tenant))
    if as_json:
        click.echo(json.dumps({"tenant": tenant, **held}))
        return
    for name, count in held.items():
        click.echo(f"{name:<10}{count}")


@tenants.command(
    epilog="""
\b
Examples:
  collector tenants remove acme
  collector tenants remove acme --yes
"""
)
@click.argument("tenant", callback=tenant_name)
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(tenant: str, yes: bool) -> None:
    """Remove a tenant with all its keys, workers and history, for ever.

    Its keys are revoked first, so that nothing of it comes back meanwhile. A collector that can't
    reach the store for that long may still bring a last beat: remove the tenant once more then.
    """
    held = asyncio.run(_holdings(tenant))
    if not yes:
        consent.ask(f"Remove {tenant} with {_listed(held)}?")
    gone = asyncio.run(_remove(tenant))
    click.secho(f"Removed {tenant} with {_listed(gone)}.", fg="green")


async def _every() -> list[Tenant]:
    async with opening.opened(opening.settings(), existing=True) as store:
        return await store.tenants(now=SystemClock().now())


async def _holdings(tenant: str) -> dict[str, int]:
    async with opening.opened(opening.settings(), existing=True) as store:
        if tenant not in [each.tenant_id for each in await store.tenants(now=SystemClock().now())]:
            raise NotFound(f"there is no tenant {tenant}; `{command()} tenants list` shows them")
        return await store.holdings(tenant)


async def _remove(tenant: str) -> dict[str, int]:
    async with opening.opened(opening.settings(), existing=True) as store:
        # Also when none was left to revoke: that may have been done a moment ago.
        await store.lock_out(tenant, now=SystemClock().now())
        await asyncio.sleep(LETTING_GO_SECONDS)
        return await store.remove_tenant(tenant, now=SystemClock().now())


def _listed(held: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in held.items())


def _since(stamp: int | None) -> str:
    return "never" if stamp is None else ago(max(0.0, time.time() - stamp / SECOND))


def _facts(tenant: Tenant) -> dict[str, object]:
    last = None if tenant.last_seen is None else tenant.last_seen / SECOND
    return {
        "tenant": tenant.tenant_id,
        "workers": tenant.workers,
        "active_keys": tenant.active_keys,
        "last_seen": last,
    }
