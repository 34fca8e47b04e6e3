"""The proof that the feed loses, repeats and reorders nothing, while collectors are killed."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
from sqlalchemy import make_url

from benchmarks import processes
from benchmarks.cluster import cluster
from benchmarks.followed import SEQUENCE, FastClock
from benchmarks.places import KINDS, Kind, Places, opened, places
from benchmarks.trial import Outcome, Trial, Variant
from collector import keys
from collector.cli.tables import table
from collector.store.protocol import Store
from contract.vocabulary import SCOPES

TENANTS = ("feed-a", "feed-b", "feed-c")
SIZES: dict[Kind, int] = {"selfhosted": 1, "cloud": 2}
LIMIT_SECONDS = 150

ABOUT: dict[Variant, str] = {
    "honest": "as it is",
    "sequence": "lines numbered by a sequence (control)",
    "apart": "snapshot apart from its cursor (control)",
}

EXAMPLES = """
\b
Examples:
  python -m benchmarks.feed
  python -m benchmarks.feed --store cloud --kills 30
  python -m benchmarks.feed --json feed.json

\b
Exit codes:
  0 nothing lost, repeated or reordered, and the controls were seen to fail; 1 otherwise
"""


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kills", default=12, show_default=True, type=click.IntRange(1), help="A store.")
@click.option("--workers", default=200, show_default=True, type=click.IntRange(30))
@click.option(
    "--store", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, help="Only this."
)
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="For the stores.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the outcome here.")
def feed(
    kills: int, workers: int, kinds: tuple[Kind, ...], directory: Path | None, report: Path | None
) -> None:
    """Follow the feed while its collectors are killed, and compare with the log.

    A fleet beats, changes, leaves, falls silent and returns, on a clock fifteen times as fast.
    Followers reconnect with their cursor after every cut, to whichever collector is up; what they
    saw after a snapshot has to be the log, line by line, and what they know in the end the roster.
    The controls have one defect each and have to be seen to fail.
    """
    processes.end_on_sigterm()
    runs: list[tuple[Kind, Variant]] = [(kind, "honest") for kind in kinds]
    runs += [("cloud", "sequence")] if "cloud" in kinds else []
    runs += [(kind, "apart") for kind in kinds]
    with places(directory) as where:
        outcomes = [asyncio.run(_prove(where, *run, kills, workers)) for run in runs]
    faults = [f"{each.store}, {each.variant}: {f}" for each in outcomes for f in each.faults]
    _show(outcomes)
    if report is not None:
        rows = [asdict(each) for each in outcomes]
        report.write_text(json.dumps({"outcomes": rows, "faults": faults}, indent=2) + "\n")
    for fault in faults:
        click.secho(fault, fg="red", err=True)
    sys.exit(1 if faults else 0)


async def _prove(where: Places, kind: Kind, variant: Variant, kills: int, workers: int) -> Outcome:
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await _follow(where, kind, variant, kills, workers)
    except TimeoutError:
        raise click.ClickException(
            f"void: {kind}, {variant} took more than {LIMIT_SECONDS} s"
        ) from None


async def _follow(where: Places, kind: Kind, variant: Variant, kills: int, workers: int) -> Outcome:
    url, base = where.new(kind), time.time_ns() // 1000
    log = where.directory / f"{kind}-{variant}.log"
    command = (sys.executable, "-m", "benchmarks.followed", variant, str(base))
    start = partial(processes.start, command, store_url=url, log=log)
    click.echo(f"{kind}, {variant}: starting", err=True)
    async with opened(url) as store:
        minted = await _mint(store)
        if variant == "sequence":
            _make_sequences(where, url)
        async with cluster(start, SIZES[kind]) as running:
            trial = Trial(kind, variant, store, FastClock(base), running, minted, workers)
            outcome = await trial.outcome(kills if variant == "honest" else 0)
    if outcome.faults:
        click.echo("\n".join([log.read_text()[-2000:], *outcome.differences]), err=True)
    return outcome


async def _mint(store: Store) -> Mapping[str, str]:
    now = time.time_ns() // 1000
    return {t: (await keys.create(store, t, SCOPES, now=now))[1] for t in TENANTS}


def _make_sequences(where: Places, url: str) -> None:
    database = make_url(url).database
    assert database is not None
    for tenant in TENANTS:
        where.postgres.execute(f'CREATE SEQUENCE "{SEQUENCE}{tenant}"', database)


def _show(outcomes: list[Outcome]) -> None:
    rows = [_row(outcome) for outcome in outcomes]
    heads = [name.upper() for name in rows[0]]
    table(heads, [list(map(str, row.values())) for row in rows], empty="Nothing was followed.")


def _row(outcome: Outcome) -> dict[str, object]:
    return {
        "store": outcome.store,
        "collector": ABOUT[outcome.variant],
        "kills": outcome.kills,
        "subscribers": outcome.followers,
        "reconnects": outcome.reconnects,
        "log": outcome.lines_in_the_log,
        "seen": outcome.seen.seen,
        "snapshots": outcome.snapshots,
        "missing": outcome.seen.missing,
        "duplicated": outcome.seen.duplicated,
        "out of order": outcome.seen.out_of_order,
        "unlike the log": outcome.seen.unlike_the_log,
        "states that differ": len(outcome.differences),
    }


if __name__ == "__main__":
    feed()
