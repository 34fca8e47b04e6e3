"""Asking before what can't be undone."""

from __future__ import annotations

import sys

import click


def ask(question: str, *, err: bool = False) -> None:
    """Go on if the answer is yes; where nobody can answer, say how to go on without."""
    try:
        is_agreed = click.confirm(question, err=err)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.ClickException("nobody is there to answer; --yes goes on unasked") from None
    if not is_agreed:
        raise click.Abort
