"""`collector conformance`: the suite, where what it needs is installed."""

from __future__ import annotations

import click

__all__ = ["conformance"]


def _without(missing: str | None) -> click.Command:
    """In its place, so that the list of commands is whole: it says what to install."""

    def refuse(**_: object) -> None:
        raise click.ClickException(
            f"the suite needs {missing}: pip install 'worker-presence[conformance]'"
        )

    return click.Command(
        "conformance",
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        help="Say whether a collector keeps the contract; not installed here.",
    )


try:
    from conformance.command import conformance
except ModuleNotFoundError as error:
    conformance = _without(error.name)
