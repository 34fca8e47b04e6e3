"""The command line: one file a command group."""

from __future__ import annotations

import sys

import click

from collector import __version__
from collector.cli import agents, keys, migrate, serve
from collector.cli.exits import exit_code
from collector.errors import CollectorError

EXAMPLES = """
\b
Examples:
  collector serve
  collector keys create --tenant acme --scopes ingest,read
  collector agents list

\b
Exit codes:
  0 done, 1 failed, 2 wrong usage or settings, 3 collector or store unreachable, 4 refused
"""


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="collector")
def collector() -> None:
    """Who is alive, and what are they doing, right now.

    Settings come from COLLECTOR_… variables; the README lists them.
    """


collector.add_command(serve.serve)
collector.add_command(migrate.migrate)
collector.add_command(keys.keys)
collector.add_command(agents.agents)


def main() -> None:
    """Run, and say what went wrong in one line with the exit code that belongs to it."""
    try:
        collector()
    except CollectorError as error:
        click.secho(f"collector: {error.detail}", fg="red", err=True)
        sys.exit(exit_code(error))
