"""Whether the suite can fail: `python -m conformance.drift` breaks the collector in many ways.

Each drift is a patch with the rule that it breaks. It is applied to a copy of the tree, and the
suite, unchanged, must name that rule. A patch that no longer applies is a failure too.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from conformance.launcher import ROOT
from conformance.processes import end_on_sigterm

DRIFTS = Path(__file__).with_name("drifts")
# What a collector of ours is made of.
PARTS = ("collector", "contract", "conformance", "migrations")
RUN_SECONDS = 420

EXAMPLES = """
\b
Examples:
  python -m conformance.drift
  python -m conformance.drift ttl-44 body-tenant
  python -m conformance.drift --jobs 4

\b
Exit codes:
  0 every drift was named, 1 one was not, 2 wrong usage
"""


@dataclass(frozen=True, slots=True)
class Drift:
    """One way to break the contract."""

    name: str
    about: str
    rule: str
    target: str
    patch: str

    @classmethod
    def read(cls, path: Path) -> Drift:
        patch = path.read_text()
        head = dict(line.split(": ", 1) for line in patch.partition("\n\n")[0].splitlines())
        return cls(path.stem, head["Drift"], head["Rule"], head["Target"], patch)

    def apply(self, tree: Path) -> str:
        """Break the code in `tree`; what git says if that can't be done."""
        applied = subprocess.run(
            ["git", "apply", "-"], cwd=tree, input=self.patch, capture_output=True, text=True
        )
        return applied.stderr.strip()


@dataclass(frozen=True, slots=True)
class Finding:
    """What the suite said of one drift."""

    drift: Drift
    broken: tuple[str, ...]
    trouble: str = ""

    @property
    def is_named(self) -> bool:
        return not self.trouble and self.drift.rule in self.broken


def drifts(names: Iterable[str] = ()) -> list[Drift]:
    wanted = set(names)
    found = [Drift.read(path) for path in sorted(DRIFTS.glob("*.patch"))]
    if unknown := wanted - {each.name for each in found}:
        raise click.UsageError(f"there is no drift called {', '.join(sorted(unknown))}")
    return [each for each in found if not wanted or each.name in wanted]


def copied(directory: Path) -> Path:
    """The tree again, to be broken."""
    tree = directory / "tree"
    for part in PARTS:
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1)
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="At once.")
def drift(names: tuple[str, ...], jobs: int) -> None:
    """Break the collector on purpose, and see whether the suite says so."""
    end_on_sigterm()
    findings = asyncio.run(_try_all(drifts(names), jobs))
    named = sum(each.is_named for each in findings)
    click.echo(f"\n{named} of {len(findings)} drifts named, {named / len(findings):.0%}.")
    sys.exit(0 if named == len(findings) else 1)


async def _try_all(wanted: list[Drift], jobs: int) -> list[Finding]:
    turn = asyncio.Semaphore(jobs)

    async def one(each: Drift) -> Finding:
        async with turn:
            finding = await _try(each)
        _show(finding)
        return finding

    return list(await asyncio.gather(*map(one, wanted)))


async def _try(each: Drift) -> Finding:
    with tempfile.TemporaryDirectory(prefix="drift-") as name:
        tree = await asyncio.to_thread(copied, Path(name))
        if refusal := each.apply(tree):
            return Finding(each, (), f"the patch does not apply: {refusal}")
        report = Path(name) / "report.json"
        suite = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "conformance", "--target", each.target),
            *("--tree", str(tree), "--report", str(report)),
            cwd=ROOT,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(RUN_SECONDS):
                _, said = await suite.communicate()
        except TimeoutError:
            return Finding(each, (), f"the suite took over {RUN_SECONDS} s")
        finally:
            if suite.returncode is None:
                suite.terminate()
                await suite.wait()
        if not report.exists():
            return Finding(each, (), f"the suite did not run: {said.decode()[-300:]}")
        (run,) = json.loads(report.read_text())
    # A case that only ran out of time may be another one's victim: it names nothing.
    broken = {
        case["rule"]
        for case in run["cases"]
        if case["result"] == "failed" and "TimeoutError" not in case["seen"]
    }
    return Finding(each, tuple(sorted(broken, key=lambda rule: int(rule[1:]))))


def _show(finding: Finding) -> None:
    word, colour = ("named", "green") if finding.is_named else ("MISSED", "red")
    click.secho(f"{word:7}", fg=colour, nl=False)
    told = finding.trouble or ", ".join(finding.broken) or "nothing"
    each = finding.drift
    click.echo(f"{each.rule:4} {each.name} ({each.target}): {each.about}; broken: {told}")


if __name__ == "__main__":
    drift(prog_name="python -m conformance.drift")
