"""Fresh stores of both kinds for one run, on a real disk; nothing of them outlives it."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import click

from collector.settings import Settings
from collector.store.open import store_for
from collector.store.protocol import Store
from conformance.postgres import Server, installations

Kind = Literal["selfhosted", "cloud"]
KINDS: tuple[Kind, ...] = ("selfhosted", "cloud")
# What the figures call them.
STORES: dict[Kind, str] = {"selfhosted": "SQLite", "cloud": "PostgreSQL"}


@dataclass
class Places:
    """Where stores of this run are made."""

    directory: Path
    postgres: Server
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def new(self, kind: Kind) -> str:
        """The URL of a store that does not hold a single table yet."""
        name = f"store_{next(self._numbers)}"
        if kind == "selfhosted":
            return f"sqlite:///{self.directory / name}.db"
        self.postgres.execute(f"CREATE DATABASE {name}")
        return self.postgres.url(name)

    def settle(self, url: str) -> None:
        """Do now what PostgreSQL would do some minutes after a large change."""
        if not url.startswith("sqlite"):
            self.postgres.execute("VACUUM ANALYZE", url.rpartition("/")[2])
            self.postgres.execute("CHECKPOINT")


@contextmanager
def places(directory: Path | None) -> Iterator[Places]:
    """Durable on both sides, as users run them: a commit is on the disk when it returns."""
    found = installations()
    if not found:
        raise click.ClickException("no PostgreSQL here: make install brings one")
    newest = max(found, key=lambda each: each.version)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-", dir=directory) as own,
        Server.start(newest, directory=directory, durable=True) as postgres,
    ):
        yield Places(Path(own), postgres)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """The store at head, beside whatever collector serves it."""
    store = store_for(Settings(store_url=url))
    try:
        await store.open()
        if await store.behind():
            await store.migrate()
        yield store
    finally:
        await store.close()
