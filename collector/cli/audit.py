"""`collector audit`: who did what, on the store itself."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import click

from collector.cli import opening
from collector.cli.keys import tenant_name
from collector.cli.tables import table
from collector.values import SECOND, Audited
from contract.vocabulary import DEFAULT_TENANT, MAX_AUDIT_PAGE

HEADS = ("TIME (UTC)", "ACTOR", "ACTION", "SUBJECT", "DETAIL")


@click.command(
    epilog="""
\b
Examples:
  collector audit
  collector audit --tenant acme --last 20
  collector audit --tenant acme --json
"""
)
@click.option(
    "--tenant", default=DEFAULT_TENANT, show_default=True, callback=tenant_name, help="Whose."
)
@click.option(
    "--last", default=50, show_default=True, type=click.IntRange(1, MAX_AUDIT_PAGE), help="Acts."
)
@click.option("--json", "as_json", is_flag=True, help="A list of objects, newest first.")
def audit(tenant: str, last: int, as_json: bool) -> None:
    """Show what was done to a tenant's keys and workers, newest first."""
    acts = asyncio.run(_acts(tenant, last))
    if as_json:
        click.echo(json.dumps([{**act._asdict(), "at": act.at / SECOND} for act in acts]))
        return
    table(
        HEADS,
        [_row(act) for act in acts],
        empty=f"Nothing was done in {tenant} yet.",
        whole=HEADS,
    )


async def _acts(tenant: str, last: int) -> list[Audited]:
    async with opening.opened(opening.settings(), existing=True) as store:
        return await store.audit(tenant, before=None, limit=last)


def _row(act: Audited) -> tuple[str, ...]:
    told = [
        f"{name} {_plain(name, value)}"
        for name, value in act.detail.items()
        # That one worker is one worker is no news.
        if value is not None and (act.action, name) != ("worker.removed", "workers")
    ]
    return _time(act.at / SECOND), act.actor, act.action, act.subject, ", ".join(told)


def _plain(name: str, value: object) -> str:
    if isinstance(value, list):
        return "+".join(map(str, value))
    return _time(value) if name.endswith("_at") and isinstance(value, float) else str(value)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
