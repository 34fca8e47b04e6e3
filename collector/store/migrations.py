"""Runs the one history of migrations on a connection that a backend lends."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from sqlalchemy import Connection

from collector.store.schema import HEAD

_PACKAGE = Path(__file__).parents[1]
# Alembic keeps its context in module globals: two upgrades in one process would collide.
_one_at_a_time = Lock()


def directory() -> Path:
    """Inside the package when installed from a wheel, beside it in a checkout."""
    packaged = _PACKAGE / "migrations"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "migrations"


def upgrade(conn: Connection, revision: str = HEAD) -> None:
    # Imported late: it costs half a second that a migrated store never needs.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(directory()).replace("%", "%%"))
    config.attributes["connection"] = conn
    with _one_at_a_time:
        command.upgrade(config, revision)
