"""`collector migrate`: bring the store's schema to head."""

from __future__ import annotations

import asyncio

import click

from collector.cli import opening
from collector.cli.spinner import waiting
from collector.store.open import store_for

EXAMPLES = """
\b
Examples:
  collector migrate
  COLLECTOR_STORE_URL=postgresql://collector@db/presence collector migrate
"""


@click.command(epilog=EXAMPLES)
def migrate() -> None:
    """Bring the store's schema to this version; safe to run twice, or twice at once."""
    asyncio.run(_migrate())


async def _migrate() -> None:
    store = store_for(opening.settings())
    try:
        await store.open()
        behind = await store.behind()
        if behind is None:
            click.echo("The store is up to date.")
            return
        click.echo(f"Migrating: {behind}.")
        with waiting("migrating"):
            await store.migrate()
        click.secho("Done.", fg="green")
    finally:
        await store.close()
