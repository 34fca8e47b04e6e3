"""Which workers a command is about: the options of every command that may mean some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

Value = str | tuple[str, ...]
Query = dict[str, Value]
Command = Callable[..., Any]


def filters(command: Command) -> Command:
    """Give the command --name, --project and --region."""
    for option in (
        click.option("--region", callback=_filled, help="Only this region's."),
        click.option("--project", callback=_filled, help="Only this project's."),
        click.option(
            "--name", "agent_name", callback=_filled, help="Only workers with this agent_name."
        ),
    ):
        command = option(command)
    return command


def given(options: Mapping[str, Value | int | None]) -> Query:
    """The query of those that were given; zero is given, too."""
    return {
        name: value if isinstance(value, tuple) else str(value)
        for name, value in options.items()
        if value is not None and value != ()
    }


def _filled(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """An empty one is a variable that is not set; taken for none, it would mean everybody."""
    if value == "":
        raise click.BadParameter("is empty; leave it out to mean any")
    return value
