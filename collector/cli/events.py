"""`collector events`: the tenant's log, as it was and as it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click

from collector.cli import client
from collector.cli.filters import Query, filters, given
from collector.cli.tables import COLOURS
from collector.escapes import json_line, printable

WAIT_SECONDS = 25


@click.command(
    epilog="""
\b
Examples:
  collector events
  collector events --last 100 --json
  collector events --follow --project lobby
"""
)
@click.option(
    "--last",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="So many lines, the newest.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on until interrupted.")
@filters
@click.option("--json", "as_json", is_flag=True, help="One event a line.")
def events(last: int, follow: bool, as_json: bool, **wanted: str | None) -> None:
    """Show who came, changed, left and was lost.

    A line's time is that of what it tells: an offline is dated 45 s after the last beat, and may
    stand after lines with a later time.

    Reads VOICEGW_COLLECTOR_URL (default http://127.0.0.1:8080) and VOICEGW_API_KEY.
    """
    with suppress(KeyboardInterrupt):
        for event in _events(last, follow, given(wanted)):
            click.echo(json_line(event) if as_json else _line(event))


def _events(last: int, follow: bool, query: Query) -> Iterator[dict[str, Any]]:
    answer = client.get("/v1/events", {**query, "last": str(last)})
    yield from answer["events"]
    if last and not answer["events"]:
        click.echo("Nothing has happened yet.", err=True)
    while follow:
        asked = {**query, "after": answer["cursor"], "wait": str(WAIT_SECONDS)}
        answer = client.insist("/v1/events", asked)
        yield from answer["events"]


def _line(event: dict[str, Any]) -> str:
    when = f"{datetime.fromtimestamp(event['at'], UTC):%Y-%m-%d %H:%M:%S}"
    if event["type"] == "snapshot":
        return click.style(f"{when}  (some lines are gone; going on from here)", dim=True)
    worker = event["worker"]
    kind = printable(event["type"].removeprefix("worker."))
    reason = printable(f" ({event['reason']})") if event["reason"] else ""
    state = click.style(printable(worker["status"]), fg=COLOURS.get(worker["status"]))
    return f"{when}  {kind:<8}  {printable(worker['agent_id'])}  {state}{reason}"
