"""The proof that 202 means committed: kill -9 under load, and look for what was acknowledged."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from benchmarks import processes
from benchmarks.load import Beaten, Load
from benchmarks.mark import Mark
from benchmarks.places import KINDS, Kind, Places, opened, places
from collector import keys
from collector.cli.tables import table
from collector.clock import SystemClock
from collector.values import RosterQuery

TENANTS = ("kill-a", "kill-b", "kill-c", "kill-d")
CONNECTIONS = 64
MAX_LINES = 10_000_000
# A collector lives this long at most, counted from its first acknowledged beat.
LIFE_SECONDS = 0.6
# How many times the kills asked for it may take until one falls into a commit.
PATIENCE = 5

Answers = Literal["honest", "early"]
ANSWERS: dict[Answers, str] = {"honest": "after the commit", "early": "before it (control)"}

EXAMPLES = """
\b
Examples:
  python -m benchmarks.kill
  python -m benchmarks.kill --kills 100 --store cloud
  python -m benchmarks.kill --json kill.json

\b
Exit codes:
  0 nothing acknowledged is missing, and the control lost something; 1 otherwise
"""


@dataclass(frozen=True)
class Outcome:
    """What one store held after its collector was killed again and again."""

    store: Kind
    answers: Answers
    kills: int
    inside_a_commit: int
    sent: int
    refused: int
    acknowledged: int
    present: int
    missing: int
    torn: int

    @property
    def faults(self) -> list[str]:
        """Why this outcome proves nothing, or proves a loss."""
        if self.answers == "early":
            return [] if self.missing else ["the control lost nothing: the proof sees nothing"]
        found = {
            f"{self.missing} acknowledged beats are missing": self.missing > 0,
            f"{self.torn} beats are there in part": self.torn > 0,
            "no kill fell into a commit": self.inside_a_commit == 0,
            "nothing was acknowledged": self.acknowledged == 0,
        }
        return [fault for fault, holds in found.items() if holds]


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kills", default=20, show_default=True, type=click.IntRange(1), help="A store.")
@click.option(
    "--store", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, help="Only this."
)
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="For the stores.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the outcome here.")
def kill(kills: int, kinds: tuple[Kind, ...], directory: Path | None, report: Path | None) -> None:
    """Kill a collector under load, at random moments, on each store.

    A beat counts as acknowledged when its 202 was read to the last byte. After the last kill the
    store is opened and compared. The control is the same with a store that answers before it
    commits, and has to lose beats: it shows that the proof would see a loss.
    """
    processes.end_on_sigterm()
    with places(directory) as where:
        outcomes = asyncio.run(_every(where, kinds, kills))
    _show(outcomes)
    faults = [f"{each.store}, {each.answers}: {f}" for each in outcomes for f in each.faults]
    if report is not None:
        rows = [asdict(each) for each in outcomes]
        report.write_text(json.dumps({"outcomes": rows, "faults": faults}, indent=2) + "\n")
    for fault in faults:
        click.secho(fault, fg="red", err=True)
    sys.exit(1 if faults else 0)


async def _every(where: Places, kinds: tuple[Kind, ...], kills: int) -> list[Outcome]:
    return [await _prove(where, kind, answers, kills) for kind in kinds for answers in ANSWERS]


async def _prove(where: Places, kind: Kind, answers: Answers, wanted: int) -> Outcome:
    url = where.new(kind)
    mark_path = where.directory / f"{kind}-{answers}.mark"
    mark = Mark.create(mark_path)
    command = (sys.executable, "-m", "benchmarks.killed", str(mark_path), answers)
    log = mark_path.with_suffix(".log")
    kills = inside = 0
    async with Load(await _mint(url), connections=CONNECTIONS) as load:
        while kills < wanted or (not inside and kills < wanted * PATIENCE):
            process = await asyncio.to_thread(processes.start, command, store_url=url, log=log)
            await _kill_at_random(process, load)
            kills += 1
            hit = mark.take()
            inside += hit
            _progress(kind, answers, kills, hit, load)
    present, logged = await _present(url)
    return Outcome(
        store=kind,
        answers=answers,
        kills=kills,
        inside_a_commit=inside,
        sent=load.sent,
        refused=load.refused,
        acknowledged=len(load.acknowledged),
        present=len(present),
        missing=len(load.acknowledged - present),
        torn=len(present ^ logged),
    )


async def _mint(url: str) -> Mapping[str, str]:
    now = SystemClock().now()
    async with opened(url) as store:
        return {t: (await keys.create(store, t, ["ingest"], now=now))[1] for t in TENANTS}


async def _kill_at_random(process: processes.Process, load: Load) -> None:
    try:
        await load.aim((process.host, process.port))
        await asyncio.sleep(random.uniform(0, LIFE_SECONDS))
    finally:
        # Nothing is awaited between the two, so that no connection tries a dead server.
        process.kill()
        load.lower()
    await load.drain()


async def _present(url: str) -> tuple[set[Beaten], set[Beaten]]:
    """Who has a row and who has a log line; opening the store after a kill is also its recovery."""
    now = SystemClock().now()
    rows: set[Beaten] = set()
    logged: set[Beaten] = set()
    async with opened(url) as store:
        for tenant in TENANTS:
            workers = await store.roster(tenant, RosterQuery(), now=now)
            rows.update((tenant, worker.agent_id) for worker in workers)
            lines = await store.events(tenant, after=0, limit=MAX_LINES)
            logged.update((tenant, line.agent_id) for line in lines)
    return rows, logged


def _progress(kind: Kind, answers: Answers, kills: int, hit: bool, load: Load) -> None:
    place = "inside a commit" if hit else "between commits"
    click.echo(
        f"{kind}, {answers}: kill {kills} {place}, {len(load.acknowledged)} acknowledged", err=True
    )


def _show(outcomes: list[Outcome]) -> None:
    """Torn: a worker with a row and no log line, or the reverse; one commit writes both."""
    facts = [asdict(each) | {"answers": ANSWERS[each.answers]} for each in outcomes]
    heads = [name.replace("_", " ").upper() for name in facts[0]]
    table(heads, [list(map(str, each.values())) for each in facts], empty="Nothing was killed.")


if __name__ == "__main__":
    kill()
