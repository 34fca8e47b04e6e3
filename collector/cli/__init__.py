"""The command line: one file a command group."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from collector import __version__
from collector.cli.exits import exit_code
from collector.cli.tables import colour, complain
from collector.errors import CollectorError

EXAMPLES = """
\b
Examples:
  collector demo
  collector serve
  collector keys create --tenant acme --scopes ingest,read
  collector agents list
  collector agents top
  collector events --follow
  collector doctor
  collector conformance --target selfhosted

\b
Exit codes:
  0 done, 1 failed, 2 wrong usage or settings, 3 collector or store unreachable, 4 refused,
  5 a collector that was told to stop had to be ended, because something in it hung
"""


COMMANDS = (
    "serve",
    "demo",
    "migrate",
    "keys",
    "tenants",
    "audit",
    "agents",
    "events",
    "beat",
    "doctor",
    "backup",
    "restore",
    "conformance",
    "completion",
)


class Commands(click.Group):
    """Each command is imported when it is asked for: most need nothing of the server."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        extra.setdefault("color", colour())
        return super().make_context(*args, **extra)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(import_module(f"collector.cli.{name}"), name)
        return command


@click.command(
    cls=Commands, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="collector")
def collector() -> None:
    """Who is alive, and what are they doing, right now.

    Settings come from COLLECTOR_… variables; the README lists them.
    """


def main() -> None:
    """Run, and say what went wrong in one line with the exit code that belongs to it."""
    try:
        collector()
    except CollectorError as error:
        complain(error.detail, fg="red")
        sys.exit(exit_code(error))
