"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

import click

# Behind the status of a worker whose id two processes share.
CONFLICT = " (conflict)"
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
    widths[-1] = 0  # nothing follows the last column
    click.secho("  ".join(_padded(heads, widths)).rstrip(), bold=True)
    for row in rows:
        cells = zip(row, _padded(row, widths), strict=True)
        click.echo("  ".join(_coloured(word, cell) for word, cell in cells).rstrip())


def ago(seconds: float) -> str:
    """An age as people say it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{int(seconds)}s ago"


def _coloured(word: str, cell: str) -> str:
    colour = COLOURS.get(word.removesuffix(CONFLICT))
    return click.style(cell, fg=colour) if colour else cell


def _padded(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
