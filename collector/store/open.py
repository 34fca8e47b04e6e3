"""URL → store."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from collector.errors import InvalidField
from collector.settings import Settings, variable
from collector.store.cloud import CloudStore
from collector.store.protocol import Store
from collector.store.selfhosted import SelfHostedStore

_FORMS = "must be sqlite:///PATH or postgresql://USER@HOST/DATABASE"


def store_for(settings: Settings) -> Store:
    """The store that COLLECTOR_STORE_URL names, not yet opened."""
    try:
        url = make_url(settings.store_url)
    except ArgumentError:
        raise InvalidField.of(variable("store_url"), _FORMS) from None
    match url.get_backend_name():
        case "sqlite" if url.database and url.database != ":memory:":
            return SelfHostedStore(Path(url.database))
        case "postgresql":
            return CloudStore(
                settings.store_url, direct_url=settings.direct_url, pool_size=settings.pool_size
            )
    raise InvalidField.of(variable("store_url"), _FORMS)


def is_embedded(settings: Settings) -> bool:
    """Whether the store is a file that belongs to this collector alone."""
    return settings.store_url.startswith("sqlite")
