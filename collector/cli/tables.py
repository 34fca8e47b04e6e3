"""Tables and words for people."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import compress

import click

from collector.escapes import printable

# Behind the status of a worker whose id two processes share.
CONFLICT = " (conflict)"
COLOURS = {
    "busy": "yellow",
    "idle": "green",
    "offline": "bright_black",
    "lost": "bright_black",
    "left": "bright_black",
    "active": "green",
    "revoked": "red",
    "expired": "red",
    "ok": "green",
    "warning": "yellow",
    "failed": "red",
}
GAP = "  "
# No column gets narrower than this, however narrow the terminal is.
NARROWEST = 6


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    empty: str,
    whole: Collection[str] = (),
) -> None:
    """Columns as wide as they need to be, or as the terminal lets them.

    Those that are `whole` are never cut, because people copy what stands there: rather the line
    goes on in the terminal's next one. Words that are a state have its colour.
    """
    if not rows:
        click.echo(empty)
        return
    for line in lines(heads, rows, _room(), whole=whole):
        click.echo(line)


def lines(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    room: int | None,
    *,
    whole: Collection[str] = (),
) -> list[str]:
    """The table's head and rows, with their colours, in that much room if it is limited."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if room is not None and cells:
        heads, cells = _filled(heads, cells)
    widths = [max(map(width_of, column)) for column in zip(heads, *cells, strict=True)]
    widths = fitted(widths, room, [head in whole for head in heads])
    shown = [click.style(GAP.join(_padded(heads, widths)).rstrip(), bold=True)]
    for row in cells:
        places = zip(row, _padded(row, widths), strict=True)
        shown.append(GAP.join(_coloured(word, cell) for word, cell in places).rstrip())
    return shown


def colour() -> bool | None:
    """False where NO_COLOR or the terminal says so; None leaves it to who looks."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def ago(seconds: float) -> str:
    """An age as people say it."""
    if seconds <= -1:
        return f"in {_span(-seconds)}"
    return f"{_span(max(seconds, 0))} ago"


def moment(at: float, now: float) -> str:
    """When something was, by the calendar and as people say it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC, {ago(now - at)}"


def complain(detail: str, *, fg: str) -> None:
    """Say on standard error, in one line, what is wrong; a server may have written it."""
    line = printable(" ".join(detail.splitlines()))
    click.secho(f"collector: {line}", fg=fg, err=True, color=colour())


def width_of(text: str) -> int:
    """How many places of a terminal it takes."""
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def fitted(widths: Sequence[int], room: int | None, whole: Sequence[bool] = ()) -> list[int]:
    """Take from the widest column that may be cut, again and again, until all fit into the room."""
    fit = list(widths)
    kept = list(whole) or [False] * len(fit)
    while room is not None and sum(fit) + len(GAP) * (len(fit) - 1) > room:
        cut = [width for width, is_kept in zip(fit, kept, strict=True) if not is_kept]
        if max(cut, default=0) <= NARROWEST:
            # Too long in any case: then nothing is gained by cutting the others.
            return list(widths) if any(kept) else fit
        widest = next(n for n, width in enumerate(fit) if width == max(cut) and not kept[n])
        fit[widest] -= 1
    return fit


def _filled(heads: Sequence[str], cells: list[list[str]]) -> tuple[Sequence[str], list[list[str]]]:
    """Without the columns in which nothing stands: a terminal has no room for them."""
    used = [any(column) for column in zip(*cells, strict=True)]
    return list(compress(heads, used)), [list(compress(row, used)) for row in cells]


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _room() -> int | None:
    """The terminal's width; a file or a pipe has room for everything."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _coloured(word: str, cell: str) -> str:
    tint = COLOURS.get(word.removesuffix(CONFLICT))
    return click.style(cell, fg=tint) if tint else cell


def _padded(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cut(cell, width) for cell, width in zip(cells, widths, strict=True)]


def cut(cell: str, width: int) -> str:
    """So wide, and no wider."""
    if width_of(cell) <= width:
        return cell + " " * (width - width_of(cell))
    while cell and width_of(cell) >= width:
        cell = cell[:-1]
    return f"{cell}…" + " " * (width - width_of(cell) - 1)
