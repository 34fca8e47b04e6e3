"""`collector serve` with one part of its app exchanged: all else is what users run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from starlette.types import ASGIApp

from collector.cli import serve as command
from collector.settings import Settings
from collector.store.protocol import Store

Build = Callable[[Settings, Store], ASGIApp]


def serve(build: Build) -> None:
    """Run the real command, settings and server over the app that `build` makes."""

    def create_app(settings: Settings, *, store: Store, **_: Any) -> ASGIApp:
        return build(settings, store)

    with patch.object(command, "create_app", create_app):
        command.serve(args=[], prog_name="collector serve")
