"""The command: points the suite at one or two targets and says what it found."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from conformance import report
from conformance.case import Case, all_cases
from conformance.launcher import OWN, ROOT, launched
from conformance.processes import end_on_sigterm
from conformance.runner import Outcome, Results, Tell, run
from conformance.target import Keys, Refused, Target, Unreachable

CONTRACT = ROOT / "contract" / "CONTRACT.md"
MATRIX = re.compile(r"(<!-- matrix -->\n).*?(<!-- end of the matrix -->)", re.DOTALL)
Pair = tuple[str, str]
TITLE = re.compile(r"^### (R\d+) (.+)$", re.MULTILINE)

EXAMPLES = """
\b
Examples:
  collector conformance --target selfhosted
  collector conformance --compare selfhosted cloud
  collector conformance --compare selfhosted selfhosted-slow --rule R10
  collector conformance --target selfhosted --rule R5 --verbose
  export CONFORMANCE_KEY=vk_… CONFORMANCE_OTHER_KEY=vk_…
  collector conformance --target https://collector.example --other-tenant theirs

\b
Exit codes:
  0 every core case passed and nothing broke, 1 something broke or was skipped in the core,
  2 wrong usage, 3 the target can't be reached or started, 4 it refuses the keys, 130 interrupted
"""


def _is_target(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None or value in OWN or value.startswith(("http://", "https://")):
        return value
    raise click.BadParameter(f"{value!r} is neither {' nor '.join(OWN)} nor an http(s) address")


def _are_targets(
    ctx: click.Context, param: click.Parameter, value: tuple[Pair, ...]
) -> tuple[Pair, ...]:
    for pair in value:
        for each in pair:
            _is_target(ctx, param, each)
    return value


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--target",
    callback=_is_target,
    help="selfhosted, cloud, partitioned, either of the first two with -slow at its end "
    "(COLLECTOR_FAST_PATH=off), or an address.",
)
@click.option(
    "--compare",
    "pairs",
    nargs=2,
    multiple=True,
    callback=_are_targets,
    metavar="A B",
    help="Two targets, and where they differ. Several of these run each target once.",
)
@click.option(
    "--key", envvar="CONFORMANCE_KEY", show_envvar=True, help="A key of one tenant, every scope."
)
@click.option(
    "--other-key",
    envvar="CONFORMANCE_OTHER_KEY",
    show_envvar=True,
    help="The same of another tenant.",
)
@click.option(
    "--ingest-key",
    envvar="CONFORMANCE_INGEST_KEY",
    show_envvar=True,
    help="One that may only beat.",
)
@click.option(
    "--read-key", envvar="CONFORMANCE_READ_KEY", show_envvar=True, help="One that may only read."
)
@click.option(
    "--tenantless-key",
    envvar="CONFORMANCE_TENANTLESS_KEY",
    show_envvar=True,
    help="One of no tenant, where there is such a thing.",
)
@click.option(
    "--other-tenant",
    envvar="CONFORMANCE_OTHER_TENANT",
    show_envvar=True,
    default="tenant-b",
    show_default=True,
    help="What the other key's tenant is called, for beats that claim to be its.",
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
def conformance(**given: Any) -> None:
    """Say, rule by rule, whether a collector keeps the contract.

    A collector of ours is started for it, on a new store. Any other one needs two keys, of two
    tenants that may be written to: workers with random names beat there for about a minute, and
    are removed afterwards where the collector allows it.
    """
    options = Options(**given)
    cases = options.cases()
    if options.list_them:
        for case in cases:
            click.echo(f"{case.rule:4} {case.level:9} {case.claim}")
        return
    options.check()
    end_on_sigterm()
    try:
        runs = asyncio.run(_run_all(options, cases))
    except (Unreachable, Refused) as error:
        click.secho(f"conformance: {error}", fg="red", err=True)
        sys.exit(4 if isinstance(error, Refused) else 3)
    except KeyboardInterrupt:
        click.echo("\nInterrupted; what it had made is cleaned up.", err=True)
        sys.exit(130)
    _tell(options, runs)
    sys.exit(0 if all(results.is_clean and results.judged for results in runs) else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for on the command line."""

    target: str | None
    pairs: tuple[Pair, ...]
    key: str | None
    other_key: str | None
    ingest_key: str | None
    read_key: str | None
    tenantless_key: str | None
    other_tenant: str
    rules: tuple[str, ...]
    json_file: Path | None
    junit: Path | None
    verbose: bool
    matrix: bool
    list_them: bool
    tree: Path

    @property
    def names(self) -> tuple[str, ...]:
        """Each of those that were named, once."""
        named = [name for pair in self.pairs for name in pair]
        return (self.target,) if self.target else tuple(dict.fromkeys(named))

    def cases(self) -> list[Case]:
        wanted = {rule.upper() for rule in self.rules}
        every = all_cases()
        if unknown := wanted - {case.rule for case in every}:
            raise click.UsageError(f"no case has the rule {', '.join(sorted(unknown))}")
        return [case for case in every if not wanted or case.rule in wanted]

    def check(self) -> None:
        if (self.target is None) == (not self.pairs):
            raise click.UsageError("give either --target or --compare")
        is_foreign = any(name not in OWN for name in self.names)
        if is_foreign and not (self.key and self.other_key):
            raise click.UsageError(
                "an address needs --key and --other-key, of two tenants, "
                "or CONFORMANCE_KEY and CONFORMANCE_OTHER_KEY"
            )
        if is_foreign and self.key == self.other_key:
            raise click.UsageError(
                "--key and --other-key are the same; they must be of two tenants"
            )
        for path in (self.json_file, self.junit):
            if path is not None and not path.absolute().parent.is_dir():
                raise click.UsageError(
                    f"there is no directory {path.parent} to write {path.name} to"
                )
        if self.matrix and (len(self.pairs) != 1 or self.rules):
            raise click.UsageError("--matrix needs --compare, once, and all rules")

    def foreign(self, address: str) -> Target:
        assert self.key is not None
        assert self.other_key is not None
        keys = Keys(self.key, self.other_key, self.ingest_key, self.read_key, self.tenantless_key)
        return Target(address, address.rstrip("/"), keys, self.other_tenant)


def _tell(options: Options, runs: list[Results]) -> None:
    for results in runs:
        report.show(results, verbose=options.verbose)
    found = dict(zip(options.names, runs, strict=True))
    for one, other in options.pairs:
        report.show_differences(found[one], found[other])
    if options.json_file is not None:
        options.json_file.write_text(report.as_json(runs))
    if options.junit is not None:
        options.junit.write_text(report.as_junit(runs))
    if options.matrix:
        CONTRACT.write_text(with_matrix(CONTRACT.read_text(), *runs))


async def _run_all(options: Options, cases: list[Case]) -> list[Results]:
    return [await _run_one(name, options, cases) for name in options.names]


async def _run_one(name: str, options: Options, cases: list[Case]) -> Results:
    async with opened(name, options) as target:
        with telling(name, len(cases), is_long=target.control is None) as tell:
            results = await run(target, cases, tell)
        return report.redacted(results, target.keys.all())


@contextmanager
def telling(name: str, count: int, *, is_long: bool) -> Iterator[Tell]:
    """Progress on standard error, with a word on why it stands still where it does."""
    label = f"{name} (a minute or so, most of it waiting for workers to go offline)"
    with click.progressbar(
        length=count,
        label=label if is_long else name,
        file=sys.stderr,
        show_pos=True,
        show_eta=False,
        show_percent=False,
    ) as progress:

        def tell(_outcome: Outcome) -> None:
            progress.update(1)

        yield tell


@asynccontextmanager
async def opened(name: str, options: Options) -> AsyncIterator[Target]:
    """Ours, started for it; or somebody's, as it is."""
    if name in OWN:
        async with launched(name, options.tree) as target:
            yield target
    else:
        yield options.foreign(name)


def titles(page: str) -> dict[str, str]:
    """The rules of the contract, in its order."""
    return dict(TITLE.findall(page))


def with_matrix(page: str, one: Results, other: Results) -> str:
    """The contract with the matrix that these two give."""
    rows = report.matrix(one, other, titles(page))
    return MATRIX.sub(lambda found: f"{found[1]}\n{rows}\n{found[2]}", page)
