"""`collector agents`: what a running collector says of its workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

import click

from collector.cli import client, consent
from collector.cli.durations import duration
from collector.cli.filters import Query, filters, given
from collector.cli.tables import CONFLICT, ago, moment, table
from collector.cli.top import top
from collector.escapes import json_line, printable
from contract.vocabulary import STATUSES

WATCH_SECONDS = 2.0
Asking = Callable[[str, Query], Any]
TIMES = ("started_at", "ts", "first_seen", "last_seen")


@click.group(
    epilog="""
\b
Examples:
  collector agents list --status busy
  collector agents top
  collector agents show worker-1
  collector agents prune --offline-for 7d
  collector agents remove --project lobby --dry-run
"""
)
def agents() -> None:
    """Workers, as the running collector at VOICEGW_COLLECTOR_URL sees them.

    Reads VOICEGW_COLLECTOR_URL (default http://127.0.0.1:8080) and VOICEGW_API_KEY.
    """


@agents.command(
    "list",
    epilog="""
\b
Examples:
  collector agents list
  collector agents list --status busy --status idle --json
  collector agents list --watch
""",
)
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only these.")
@filters
@click.option("--watch", "-w", is_flag=True, help="Show it anew every 2 s until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="The collector's own answer.")
def list_agents(as_json: bool, watch: bool, **wanted: str | tuple[str, ...] | None) -> None:
    """List the tenant's workers, newest beat first."""
    query = given(wanted)
    with suppress(KeyboardInterrupt) if watch else nullcontext():
        _show_roster(query, as_json)
        while watch:
            time.sleep(WATCH_SECONDS)
            _show_roster(query, as_json, ask=client.insist, anew=not as_json)


agents.add_command(top)


@agents.command(
    epilog="""
\b
Examples:
  collector agents show worker-1
  collector agents show worker-1 --json
"""
)
@click.argument("agent_id")
@click.option("--json", "as_json", is_flag=True, help="The collector's own answer.")
def show(agent_id: str, as_json: bool) -> None:
    """Show everything known of one worker."""
    worker = client.get(client.worker_path(agent_id))
    if as_json:
        click.echo(json_line(worker))
        return
    for name, value in worker.items():
        click.echo(f"{printable(name):<20}{_told(worker, name, value)}".rstrip())


@agents.command(
    epilog="""
\b
Examples:
  collector agents prune --offline-for 7d
  collector agents prune --offline-for 12h --yes
"""
)
@click.option("--offline-for", required=True, callback=duration, help="Such as 12h or 7d.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(offline_for: int, yes: bool) -> None:
    """Remove workers that have been offline for so long; needs a key with the scope admin.

    A worker that beats again is simply there again.
    """
    _remove({"status": "offline", "unseen_for": str(offline_for)}, yes=yes, dry_run=False)


@agents.command(
    epilog="""
\b
Examples:
  collector agents remove --project lobby --dry-run
  collector agents remove --status offline --region eu --yes
"""
)
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only these.")
@filters
@click.option("--unseen-for", callback=duration, help="Only those without a beat for so long.")
@click.option("--dry-run", is_flag=True, help="Only say who would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="The collector's own answer.")
def remove(
    dry_run: bool, yes: bool, as_json: bool, **wanted: str | int | tuple[str, ...] | None
) -> None:
    """Remove all workers that match; needs a key with the scope admin.

    Whoever beats again is simply there again.
    """
    query = given(wanted)
    if not query:
        raise click.UsageError("say whom: --status, --name, --project, --region or --unseen-for")
    _remove(query, yes=yes, dry_run=dry_run, as_json=as_json)


def _remove(query: Query, *, yes: bool, dry_run: bool, as_json: bool = False) -> None:
    found = client.delete("/v1/agents", {**query, "dry_run": "true"})
    if as_json and (dry_run or not found["matched"]):
        click.echo(json_line(found))
        return
    if not found["matched"]:
        click.echo("Nobody matches.")
        return
    if not as_json:
        _preview(found)
    if dry_run:
        click.echo(f"{found['matched']} would be removed.")
        return
    if not yes:
        these = "this one" if found["matched"] == 1 else f"these {found['matched']}"
        consent.ask(f"Remove {these}?", err=as_json)
    removed = client.delete("/v1/agents", query)
    if as_json:
        click.echo(json_line(removed))
    else:
        click.secho(f"{removed['removed']} removed.", fg="green")


def _preview(found: dict[str, Any]) -> None:
    for agent_id in found["agent_ids"]:
        click.echo(f"  {printable(agent_id)}")
    unnamed = found["matched"] - len(found["agent_ids"])
    if unnamed:
        click.echo(f"  and {unnamed} more")


def _show_roster(
    query: Query,
    as_json: bool,
    *,
    ask: Asking = client.get,
    anew: bool = False,
) -> None:
    roster = ask("/v1/agents", query)
    if anew:
        # Only now: what is there stays to be read until there is something newer.
        click.clear()
    if as_json:
        click.echo(json_line(roster))
        return
    table(
        ("AGENT", "NAME", "STATUS", "SESSIONS", "SEEN", "VERSION", "REGION", "HOST"),
        [_row(worker) for worker in roster["workers"]],
        empty="No workers match." if query else "No workers yet.",
        whole=("AGENT",),
    )
    if gap := roster["recent_gap"]:
        away = [
            f"{datetime.fromtimestamp(gap[at], UTC):%H:%M:%S}" for at in ("began_at", "ended_at")
        ]
        click.secho(
            f"No collector listened from {away[0]} to {away[1]} UTC: who is offline may be alive.",
            fg="yellow",
            err=True,
        )


def _told(worker: dict[str, Any], name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in TIMES:
        return moment(value, now=worker["last_seen"] + worker["age_seconds"])
    return printable(str(value))


def _row(worker: dict[str, Any]) -> tuple[str, ...]:
    return (
        worker["agent_id"],
        worker["agent_name"],
        worker["status"] + (CONFLICT if worker["conflict"] else ""),
        str(worker["active_sessions"]),
        ago(worker["age_seconds"]),
        worker["version"] or "",
        worker["region"] or "",
        worker["host"] or "",
    )
