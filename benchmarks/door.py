"""The proof that the door holds: attacks on a collector, and on one without the defence."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks import processes
from benchmarks.attacks import ATTACKS, Control
from benchmarks.besieged import Besieged, Scale, besieged
from benchmarks.memory import LIMIT_BYTES, MB
from benchmarks.places import KINDS, STORES, Kind, Places, places
from collector.cli.tables import colour, table

LIMIT_SECONDS = 300
HEADS = ("ATTACK", "STORE", "COLLECTOR", "TRIED", "WRONG", "PEAK", "P50", "P99", "")

EXAMPLES = """
\b
Examples:
  python -m benchmarks.door
  python -m benchmarks.door --attack pipelining --attack heads --store selfhosted
  python -m benchmarks.door --json docs/door.json && python -m benchmarks.report

\b
Exit codes:
  0 every attack was withstood, and each control was seen to fail; 1 otherwise
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one attack on one collector; beats' times are in milliseconds."""

    attack: str
    store: Kind
    # The defence that a control does without, and what it has to be wrong in.
    without: str | None
    shows: str | None
    tried: int
    # How often each respect was wrong, and the same in words.
    wrong: dict[str, int]
    details: list[str]
    peak_bytes: int
    p50_ms: float
    p99_ms: float
    seconds: float

    @property
    def faults(self) -> list[str]:
        """Why this outcome proves nothing, or proves that the door does not hold."""
        if self.shows is None:
            return self.details
        if self.wrong.get(self.shows):
            return []
        return [f"the control withstood it in {self.shows}: the proof sees nothing"]

    @property
    def collector(self) -> str:
        return "as it is" if self.without is None else f"without its {self.without} (control)"

    def row(self) -> tuple[str, ...]:
        return (
            self.attack,
            STORES[self.store],
            self.collector,
            f"{self.tried:,}",
            f"{sum(self.wrong.values()):,}",
            f"{self.peak_bytes / MB:,.0f} MB",
            _milliseconds(self.p50_ms),
            _milliseconds(self.p99_ms),
            "failed" if self.faults else "ok",
        )


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, help="Only this."
)
@click.option(
    "--attack",
    "names",
    type=click.Choice(list(ATTACKS)),
    multiple=True,
    default=list(ATTACKS),
    help="Only this; may be given more than once.",
)
@click.option("--directory", type=click.Path(path_type=Path, exists=True), help="For the stores.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the outcome here.")
def door(
    kinds: tuple[Kind, ...], names: tuple[str, ...], directory: Path | None, report: Path | None
) -> None:
    """Attack a collector as nobody with a key would have to, and as one bad tenant could.

    Each attack is made on a collector of its own while others beat on it, on each store. The
    control is the same on a collector without the one defence that the attack is for, and has to
    be wrong: it shows that the proof would see it. All of it stays on this machine's loopback
    address, and takes some fifteen minutes.
    """
    processes.end_on_sigterm()
    _raise_descriptors()
    outcomes: list[Outcome] = []
    with places(directory) as where:
        for name in names:
            for kind in kinds:
                for control in (None, *ATTACKS[name].controls):
                    outcomes.append(asyncio.run(prove(where, kind, name, control, Scale())))
                    # After each: what was found is not lost to what comes last.
                    if report is not None:
                        report.write_text(json.dumps(document(outcomes), indent=2) + "\n")
    click.echo(f"Others' beats beside each; memory may reach {LIMIT_BYTES / MB:.0f} MB.\n")
    table(HEADS, [each.row() for each in outcomes], empty="Nothing was attacked.")
    faults = [fault for each in outcomes for fault in named_faults(each)]
    for fault in faults:
        click.secho(fault, fg="red", err=True, color=colour())
    sys.exit(1 if faults else 0)


async def prove(
    where: Places, kind: Kind, name: str, control: Control | None, scale: Scale
) -> Outcome:
    """One attack on one collector; a control is held to what it has to show."""
    attack, without = ATTACKS[name], control.without if control else None
    heading = f"{name}, {STORES[kind]}{f', without its {without}' if without else ''}"
    click.secho(heading, bold=True, err=True, color=colour())
    began = time.monotonic()
    limit = asyncio.timeout(LIMIT_SECONDS)
    try:
        async with (
            limit,
            besieged(
                where,
                kind,
                scale,
                without=without,
                settings=attack.settings(scale),
                descriptors=attack.descriptors(scale),
                is_behind_a_stretch=attack.is_behind_a_stretch,
            ) as on,
        ):
            await attack.make(on)
    except TimeoutError:
        if not limit.expired():
            raise
        raise click.ClickException(f"void: {heading} took more than {LIMIT_SECONDS} s") from None
    outcome = _outcome(on, name, kind, control, time.monotonic() - began)
    tint, verdict = ("red", "failed") if outcome.faults else ("green", "ok")
    click.secho(f"  {verdict}, {outcome.seconds:.0f} s", fg=tint, err=True, color=colour())
    for detail in outcome.details:
        click.secho(f"  {detail}", dim=control is not None, err=True, color=colour())
    return outcome


def _outcome(
    on: Besieged, name: str, kind: Kind, control: Control | None, seconds: float
) -> Outcome:
    took = on.took
    return Outcome(
        attack=name,
        store=kind,
        without=control.without if control else None,
        shows=control.shows if control else None,
        tried=on.tried,
        wrong=dict(on.wrong.items()),
        details=on.faults,
        peak_bytes=on.peak.bytes,
        p50_ms=took.median * 1000 if took else 0.0,
        p99_ms=took.p99 * 1000 if took else 0.0,
        seconds=seconds,
    )


def document(outcomes: Sequence[Outcome]) -> dict[str, object]:
    faults = [fault for each in outcomes for fault in named_faults(each)]
    return {"outcomes": [asdict(each) for each in outcomes], "faults": faults}


def named_faults(outcome: Outcome) -> list[str]:
    head = f"{outcome.attack}, {STORES[outcome.store]}, {outcome.collector}"
    return [f"{head}: {fault}" for fault in outcome.faults]


def _raise_descriptors() -> None:
    """Raise the limit to the user's: thousands of connections have two ends on this machine."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    door(prog_name="python -m benchmarks.door")
