"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

import click

COLOURS = {
    "busy": "yellow",
    "idle": "green",
    "offline": "bright_black",
    "active": "green",
    "revoked": "red",
}


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Columns as wide as they need to be; words that are a state have its colour."""
    if not rows:
        click.echo(empty)
        return
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    click.secho(_line(heads, widths), bold=True)
    for row in rows:
        cells = [
            click.style(cell.ljust(width), fg=COLOURS.get(cell))
            for cell, width in zip(row, widths, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def ago(seconds: float) -> str:
    """An age as people say it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{int(seconds)}s ago"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()
