"""`collector conformance`: the suite, where what it needs is installed."""

from __future__ import annotations

import click

try:
    from conformance.command import conformance
except ModuleNotFoundError as missing:
    raise click.ClickException(
        f"the suite needs {missing.name}: pip install 'worker-presence[conformance]'"
    ) from missing

__all__ = ["conformance"]
