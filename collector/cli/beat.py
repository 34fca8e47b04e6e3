"""`collector beat`: heartbeats out of a shell."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import suppress
from typing import Any

import click

from collector.cli import client
from collector.cli.durations import duration
from collector.cli.tables import complain
from collector.errors import CollectorError, QuotaExceeded
from collector.escapes import printable
from contract.vocabulary import MAX_INTEGER, STATUSES, TTL_SECONDS

HEARTBEAT = "/v1/agents/heartbeat"

EXAMPLES = """
\b
Examples:
  collector beat --name backup-job
  collector beat worker-1 --name reception --status busy --sessions 2 --project lobby
  collector beat --name backup-job --every 15s
  collector beat worker-1 --name reception --status offline
"""


def _often_enough(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    seconds = duration(ctx, param, value)
    if seconds is not None and not 1 <= seconds <= TTL_SECONDS:
        raise click.BadParameter(
            f"from 1s to {TTL_SECONDS}s: who is silent for longer counts as offline"
        )
    return seconds


@click.command(epilog=EXAMPLES)
@click.argument("agent_id", required=False, envvar="VOICEGW_AGENT_ID")
@click.option("--name", "agent_name", required=True, help="The kind of worker: it groups.")
@click.option(
    "--status", type=click.Choice(STATUSES), default="idle", show_default=True, help="What it does."
)
@click.option(
    "--sessions",
    type=click.IntRange(0, MAX_INTEGER),
    default=0,
    show_default=True,
    help="Its sessions in hand.",
)
@click.option("--project", help="Which project it works for.")
@click.option("--region", help="Where it runs.")
@click.option("--version", help="The version of its code.")
@click.option("--every", callback=_often_enough, help="Go on until interrupted, then leave: 15s.")
def beat(
    agent_id: str | None, every: int | None, status: str, sessions: int, **told: str | None
) -> None:
    """Send a heartbeat, or one every so often.

    AGENT_ID is by default VOICEGW_AGENT_ID, or else the host's name.

    With --every it goes on until it is interrupted or told to end, and then says that the worker
    leaves. A collector that is away, also at first, or has no room is tried again at the next beat.

    Needs a key with the scope ingest: VOICEGW_COLLECTOR_URL (default http://127.0.0.1:8080) and
    VOICEGW_API_KEY.
    """
    if agent_id == "":
        raise click.UsageError("AGENT_ID is empty; leave it out for the host's name")
    host = socket.gethostname()
    body = {"agent_id": agent_id or host, "status": status, "active_sessions": sessions}
    body |= {"host": host, **{name: value for name, value in told.items() if value is not None}}
    if every is None:
        client.post(HEARTBEAT, body)
        click.echo(f"{printable(str(body['agent_id']))} is {status}.")
    else:
        _keep_beating({**body, "started_at": time.time()}, every)


def _keep_beating(body: dict[str, Any], every: int) -> None:
    who = printable(body["agent_id"])
    # Both end it as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    has_come, trouble = False, None
    with suppress(KeyboardInterrupt):
        while True:
            trouble = _try(body, trouble)
            if trouble is None and not has_come:
                click.echo(f"{who} is {body['status']}, every {every} s; Ctrl-C ends it.")
                has_come = True
            time.sleep(every)
    if trouble is not None and not has_come:
        raise trouble
    client.post(HEARTBEAT, {**body, "status": "offline", "active_sessions": 0})
    click.echo(f"{who} has left.")


def _try(body: dict[str, Any], before: CollectorError | None) -> CollectorError | None:
    """What kept this beat from being taken, if it may be over by the next one.

    That is said once, and once that it is over. What won't be over by itself is raised.
    """
    try:
        client.post(HEARTBEAT, body)
    except (client.CollectorUnreachable, client.CollectorRefused, QuotaExceeded) as error:
        if before is None:
            complain(f"{error.detail.rstrip('.')}; trying again", fg="yellow")
        return error
    if before is not None:
        click.secho("The collector is back.", fg="green", err=True)
    return None
