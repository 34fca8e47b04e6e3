"""Durations as people type them: 15s, 12h, 7d."""

from __future__ import annotations

import re

import click

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Seconds, or None where nothing was given."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smhd])", value)
    if found is None:
        raise click.BadParameter("a number and s, m, h or d, such as 15s or 7d")
    return int(found[1]) * UNITS[found[2]]
