"""`collector doctor`: what is well, what is not, and what to do about it."""

from __future__ import annotations

import os
import sys

import click

from collector.cli import checks
from collector.cli.checks import Finding, Setting
from collector.cli.exits import FAILED, UNREACHABLE
from collector.cli.spinner import waiting
from collector.cli.tables import COLOURS, table
from collector.escapes import json_line, printable

EXAMPLES = """
\b
Examples:
  collector doctor
  collector doctor --json

\b
Exit codes:
  0 nothing failed, 1 something failed, 3 all that failed is that the store or the collector
  does not answer
"""


@click.command(epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Settings and findings, as one object.")
def doctor(as_json: bool) -> None:
    """Say what is well, what is not, and what to do about it.

    It looks at the settings, the store of COLLECTOR_STORE_URL, the disk, the clocks, and the
    collector at VOICEGW_COLLECTOR_URL. A beat is sent to that one with VOICEGW_API_KEY, of a
    worker `collector-doctor` that is always offline.
    """
    settings = checks.settings_of(os.environ)
    findings = _findings()
    if as_json:
        told = {
            "settings": [setting._asdict() for setting in settings],
            "findings": [_facts(finding) for finding in findings],
        }
        click.echo(json_line(told))
    else:
        _show(settings, findings)
    sys.exit(_exit_code(findings))


def _findings() -> list[Finding]:
    settings, found = checks.check_settings(os.environ)
    if settings is not None:
        with waiting("asking the store"):
            found += checks.check_store(settings)
        found += checks.check_disk(settings)
    asked = checks.check_collector()
    found += asked
    if asked[0].result != "failed":
        found += checks.check_beat(settings)
    return found


def _exit_code(findings: list[Finding]) -> int:
    failed = [finding for finding in findings if finding.result == "failed"]
    if not failed:
        return 0
    return UNREACHABLE if all(finding.is_unreachable for finding in failed) else FAILED


def _facts(finding: Finding) -> dict[str, str | None]:
    return {
        "check": finding.check,
        "result": finding.result,
        "says": finding.says,
        "fix": finding.fix,
    }


def _show(settings: list[Setting], findings: list[Finding]) -> None:
    rows = [(each.name, each.value or "–", each.source) for each in settings]
    table(("SETTING", "VALUE", "SOURCE"), rows, empty="")
    click.echo()
    for finding in findings:
        result = click.style(f"{finding.result:<7}", fg=COLOURS[finding.result])
        click.echo(f"{result}  {finding.check:<15}  {printable(finding.says)}")
        if finding.fix is not None:
            click.echo(f"{'':<26}fix: {printable(finding.fix)}")
