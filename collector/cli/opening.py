"""Opening the store that the settings name, the way every command does."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from collector.errors import StoreBehind
from collector.settings import Settings
from collector.store.open import is_embedded, store_for
from collector.store.protocol import Store


def settings() -> Settings:
    return Settings.from_environment(os.environ)


@asynccontextmanager
async def opened(chosen: Settings, *, serving: bool = False) -> AsyncIterator[Store]:
    """The store, open and at head: an embedded one is migrated here, a shared one never is."""
    store = store_for(chosen)
    try:
        await store.open(serving=serving)
        behind = await store.behind()
        if behind and is_embedded(chosen):
            await store.migrate()
        elif behind:
            raise StoreBehind(f"{behind}; bring it up to date with: collector migrate")
        yield store
    finally:
        await store.close()
