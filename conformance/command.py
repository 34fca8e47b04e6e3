"""The command: points the suite at one or two targets and says what it found."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from conformance import report
from conformance.case import Case, all_cases
from conformance.launcher import OWN, ROOT, launched
from conformance.runner import Outcome, Results, run
from conformance.target import Keys, Target, Unreachable

CONTRACT = ROOT / "contract" / "CONTRACT.md"
MATRIX = re.compile(r"(<!-- matrix -->\n).*?(<!-- end of the matrix -->)", re.DOTALL)
TITLE = re.compile(r"^### (R\d+) (.+)$", re.MULTILINE)

EXAMPLES = """
\b
Examples:
  python -m conformance --target selfhosted
  python -m conformance --compare selfhosted cloud
  python -m conformance --target https://collector.example --key vk_… --other-key vk_…
  CONFORMANCE_KEY=vk_… CONFORMANCE_OTHER_KEY=vk_… python -m conformance \\
    --target https://collector.example --report report.json --junit report.xml

\b
Exit codes:
  0 every core case passed and nothing broke, 1 something broke or was skipped in the core,
  2 wrong usage, 3 the target can't be reached or started
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which cases, of which code."""

    cases: list[Case]
    tree: Path
    keys: Keys | None


def _is_target(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None or value in OWN or value.startswith(("http://", "https://")):
        return value
    raise click.BadParameter(f"{value!r} is neither {' nor '.join(OWN)} nor an http(s) address")


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--target", callback=_is_target, help="selfhosted, cloud, or an address.")
@click.option("--compare", nargs=2, metavar="A B", help="Two targets, and where they differ.")
@click.option("--key", envvar="CONFORMANCE_KEY", help="A key of one tenant, every scope.")
@click.option("--other-key", envvar="CONFORMANCE_OTHER_KEY", help="The same of another tenant.")
@click.option("--ingest-key", envvar="CONFORMANCE_INGEST_KEY", help="One that may only beat.")
@click.option("--read-key", envvar="CONFORMANCE_READ_KEY", help="One that may only read.")
@click.option(
    "--tenantless-key",
    envvar="CONFORMANCE_TENANTLESS_KEY",
    help="One of no tenant, where there is such a thing.",
)
@click.option("--rule", "rules", multiple=True, help="Only the cases of this rule, as in R5.")
@click.option("--report", "json_file", type=click.Path(path_type=Path), help="Write JSON here.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write JUnit XML here.")
@click.option("--verbose", is_flag=True, help="Show every case, passed ones too.")
@click.option("--matrix", is_flag=True, help="With --compare: write the matrix into CONTRACT.md.")
@click.option("--list", "list_them", is_flag=True, help="List the cases and stop.")
@click.option(
    "--tree",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=ROOT,
    hidden=True,
    help="Where the code of selfhosted and cloud is.",
)
def conformance(
    target: str | None,
    compare: tuple[str, str] | None,
    key: str | None,
    other_key: str | None,
    ingest_key: str | None,
    read_key: str | None,
    tenantless_key: str | None,
    rules: tuple[str, ...],
    json_file: Path | None,
    junit: Path | None,
    verbose: bool,
    matrix: bool,
    list_them: bool,
    tree: Path,
) -> None:
    """Say, rule by rule, whether a collector keeps the contract.

    A collector of ours is started for it, on a new store. Any other one needs two keys, of two
    tenants that may be written to: workers with random names beat there for about a minute, and
    are removed afterwards where the collector allows it.
    """
    cases = [case for case in all_cases() if not rules or case.rule in rules]
    if not cases:
        raise click.UsageError(f"no case has the rule {', '.join(rules)}")
    if list_them:
        for case in cases:
            click.echo(f"{case.rule:4} {case.level:9} {case.claim}")
        return
    names = _names(target, compare)
    keys = None
    if key and other_key:
        keys = Keys(key, other_key, ingest_key, read_key, tenantless_key)
    elif any(name not in OWN for name in names):
        raise click.UsageError("an address needs --key and --other-key, of two tenants")
    if matrix and (compare is None or rules):
        raise click.UsageError("--matrix needs --compare and all rules")
    try:
        runs = asyncio.run(_run_all(names, Wanted(cases, tree, keys)))
    except Unreachable as error:
        click.secho(f"conformance: {error}", fg="red", err=True)
        sys.exit(3)
    for results in runs:
        report.show(results, verbose=verbose)
    if compare is not None:
        report.show_differences(*runs)
    if json_file is not None:
        json_file.write_text(report.as_json(runs))
    if junit is not None:
        junit.write_text(report.as_junit(runs))
    if matrix:
        CONTRACT.write_text(with_matrix(CONTRACT.read_text(), *runs))
    sys.exit(0 if all(results.is_clean for results in runs) else 1)


def _names(target: str | None, compare: tuple[str, str] | None) -> list[str]:
    if (target is None) == (compare is None):
        raise click.UsageError("give either --target or --compare")
    return [target] if target is not None else list(compare or ())


async def _run_all(names: list[str], wanted: Wanted) -> list[Results]:
    return [await _run_one(name, wanted) for name in names]


async def _run_one(name: str, wanted: Wanted) -> Results:
    async with opened(name, wanted) as target:
        with click.progressbar(
            length=len(wanted.cases), label=name, file=sys.stderr, show_pos=True
        ) as progress:

            def tell(_outcome: Outcome) -> None:
                progress.update(1)

            results = await run(target, wanted.cases, tell)
        return report.redacted(results, target.keys.all())


@asynccontextmanager
async def opened(name: str, wanted: Wanted) -> AsyncIterator[Target]:
    """Ours, started for it; or somebody's, as it is."""
    if name in OWN:
        async with launched(name, wanted.tree) as target:
            yield target
        return
    assert wanted.keys is not None
    yield Target(name=name, url=name.rstrip("/"), keys=wanted.keys)


def titles(page: str) -> dict[str, str]:
    """The rules of the contract, in its order."""
    return dict(TITLE.findall(page))


def with_matrix(page: str, one: Results, other: Results) -> str:
    """The contract with the matrix that these two give."""
    rows = report.matrix(one, other, titles(page))
    return MATRIX.sub(lambda found: f"{found[1]}\n{rows}\n{found[2]}", page)
