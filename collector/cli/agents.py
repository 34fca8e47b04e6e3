"""`collector agents`: what a running collector says of its workers."""

from __future__ import annotations

import json
from typing import Any

import click

from collector.cli import client
from collector.cli.tables import ago, table
from contract.vocabulary import STATUSES


@click.group()
def agents() -> None:
    """Workers, as the running collector at VOICEGW_COLLECTOR_URL sees them."""


@agents.command(
    "list",
    epilog="""
\b
Examples:
  collector agents list
  collector agents list --status busy --json
""",
)
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only these.")
@click.option("--name", "agent_name", help="Only workers with this agent_name.")
@click.option("--project", help="Only this project's.")
@click.option("--region", help="Only this region's.")
@click.option("--json", "as_json", is_flag=True, help="The collector's own answer.")
def list_agents(as_json: bool, **filters: str | tuple[str, ...] | None) -> None:
    """List the tenant's workers, newest beat first.

    Reads VOICEGW_COLLECTOR_URL (default http://127.0.0.1:8080) and VOICEGW_API_KEY.
    """
    given = {name: value for name, value in filters.items() if value}
    roster = client.get("/v1/agents", given)
    if as_json:
        click.echo(json.dumps(roster, ensure_ascii=False))
        return
    table(
        ("AGENT", "NAME", "STATUS", "SESSIONS", "SEEN", "VERSION", "REGION", "HOST"),
        [_row(worker) for worker in roster["workers"]],
        empty="No workers match." if given else "No workers yet.",
    )


def _row(worker: dict[str, Any]) -> tuple[str, ...]:
    return (
        worker["agent_id"],
        worker["agent_name"],
        worker["status"],
        str(worker["active_sessions"]),
        ago(worker["age_seconds"]),
        worker["version"] or "",
        worker["region"] or "",
        worker["host"] or "",
    )
