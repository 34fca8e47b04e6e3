"""`collector agents top`: the fleet at a glance, anew every 2 s."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

import click

from collector.cli import client
from collector.cli.durations import duration
from collector.cli.filters import Query, filters, given
from collector.cli.frames import SORTS, VIEWS, View, frame, summary
from collector.cli.keyboard import Terminal, draw
from collector.cli.tables import colour
from collector.errors import QuotaExceeded
from collector.escapes import json_line
from contract.vocabulary import STATUSES

ROSTER = "/v1/agents"
MOST_SECONDS = 3600
PAGE_LINES = 10
STEPS = {"up": -1, "down": 1, "page up": -PAGE_LINES, "page down": PAGE_LINES}
# More than any list has; a frame brings it back to the last line.
FAR = 10**9
PASSING = (client.CollectorUnreachable, client.CollectorRefused, QuotaExceeded)

EXAMPLES = """
\b
Examples:
  collector agents top
  collector agents top --sort cpu --project lobby
  collector agents top --status busy --once
  collector agents top --json
"""


def _seldom_enough(ctx: click.Context, param: click.Parameter, value: str) -> int:
    seconds = duration(ctx, param, value)
    if seconds is None or not 1 <= seconds <= MOST_SECONDS:
        raise click.BadParameter("from 1s to 1h")
    return seconds


@click.command(epilog=EXAMPLES)
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only these.")
@filters
@click.option(
    "--sort",
    type=click.Choice(tuple(SORTS)),
    default="status",
    show_default=True,
    help="Which workers come first.",
)
@click.option(
    "--every", default="2s", show_default=True, callback=_seldom_enough, help="How often to ask."
)
@click.option("--once", is_flag=True, help="Show one frame, and end.")
@click.option("--json", "as_json", is_flag=True, help="One summary, as JSON.")
def top(
    sort: str, every: int, once: bool, as_json: bool, **wanted: str | tuple[str, ...] | None
) -> None:
    """Watch the fleet: who is online, by name, and what each worker does.

    Keys: q quits, s changes the order, g shows groups, workers or both, arrows scroll. A collector
    that is away is asked again. Where there is no terminal, one frame is shown.
    """
    query = given(wanted)
    if as_json:
        click.echo(json_line(summary(client.get(ROSTER, query))))
    elif once or not _is_terminal():
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in frame(View(sort, roster=client.get(ROSTER, query)), columns):
            click.echo(line)
    else:
        with suppress(KeyboardInterrupt):
            _watch(View(sort), query, every)


def _is_terminal() -> bool:
    both = sys.stdin.isatty() and sys.stdout.isatty()
    return both and os.environ.get("TERM", "dumb") != "dumb"


def _watch(view: View, query: Query, every: int) -> None:
    terminal = Terminal()
    asking = Asking(query, every, terminal.wake)
    with terminal.taken():
        asking.start()
        while True:
            asking.tell(view)
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
            lines = frame(view, columns, rows)
            draw([click.unstyle(line) for line in lines] if colour() is False else lines)
            for key in terminal.pressed():
                if key == "q":
                    return
                _obey(key, view)


def _obey(key: str, view: View) -> None:
    if key == "s":
        view.sort, view.offset = _next(tuple(SORTS), view.sort), 0
    elif key == "g":
        view.shown, view.offset = _next(VIEWS, view.shown), 0
    elif key in STEPS:
        view.offset = max(0, view.offset + STEPS[key])
    elif key in ("home", "end"):
        view.offset = 0 if key == "home" else FAR


def _next(all_of_them: tuple[str, ...], current: str) -> str:
    return all_of_them[(all_of_them.index(current) + 1) % len(all_of_them)]


class Asking(Thread):
    """Asks again and again beside whoever draws: keys are heard also while nobody answers."""

    def __init__(self, query: Query, every: int, wake: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._query = query
        self._every = every
        self._wake = wake
        self._roster: dict[str, Any] | None = None
        # Since when there is trouble that may be over by the next time, and what it is.
        self._trouble: tuple[float, str] | None = None
        self._failure: Exception | None = None

    def run(self) -> None:
        while self._failure is None:
            self._ask()
            self._wake()
            time.sleep(self._every)

    def tell(self, view: View) -> None:
        """Put what is known into the view; raise what won't be over by itself."""
        if self._failure is not None:
            raise self._failure
        view.roster = self._roster
        view.away_since, view.trouble = self._trouble or (None, "")

    def _ask(self) -> None:
        try:
            self._roster, self._trouble = client.look(ROSTER, self._query), None
        except PASSING as error:
            since = self._trouble[0] if self._trouble else time.time()
            self._trouble = (since, error.detail)
        except Exception as error:
            # Raised where the terminal is given back.
            self._failure = error
