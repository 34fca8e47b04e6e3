"""Opening the store that the settings name, the way every command does."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from collector.cli.invocation import command
from collector.errors import StoreBehind, StoreUnavailable
from collector.settings import Settings
from collector.store.open import is_embedded, store_for, store_name
from collector.store.protocol import Store


def require_file(chosen: Settings) -> None:
    """Refuse to go on where an embedded store is not there."""
    if is_embedded(chosen) and not Path(store_name(chosen)).exists():
        raise StoreUnavailable(
            f"there is no store at {store_name(chosen)}; run this where the collector runs, "
            "or set COLLECTOR_STORE_URL"
        )


def settings() -> Settings:
    return Settings.from_environment(os.environ)


@asynccontextmanager
async def opened(
    chosen: Settings, *, serving: bool = False, existing: bool = False
) -> AsyncIterator[Store]:
    """The store, open and at head: an embedded one is migrated here, a shared one never is.

    With `existing`, an embedded one that is not there is an error and not made: whoever looks
    for it is in the wrong directory.
    """
    store = store_for(chosen)
    if existing:
        require_file(chosen)
    try:
        await store.open(serving=serving)
        behind = await store.behind()
        if behind and is_embedded(chosen):
            await store.migrate()
        elif behind:
            raise StoreBehind(f"{behind}; bring it up to date with: {command()} migrate")
        yield store
    finally:
        await store.close()
