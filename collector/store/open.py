"""URL → store."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from collector.errors import InvalidField
from collector.settings import Settings, variable
from collector.store.cloud import CloudStore
from collector.store.protocol import Store
from collector.store.selfhosted import SelfHostedStore

_FORMS = "must be sqlite:///PATH or postgresql://USER@HOST/DATABASE"


def store_for(settings: Settings) -> Store:
    """The store that COLLECTOR_STORE_URL names, not yet opened."""
    url = _parsed("store_url", settings.store_url)
    if settings.direct_url is not None:
        _parsed("direct_url", settings.direct_url)
    match url.get_backend_name():
        case "sqlite" if url.database and url.database != ":memory:":
            return SelfHostedStore(Path(url.database))
        case "postgresql":
            return CloudStore(
                settings.store_url, direct_url=settings.direct_url, pool_size=settings.pool_size
            )
    raise InvalidField.of(variable("store_url"), _FORMS)


def store_name(settings: Settings) -> str:
    """The store for people: without user, password or options."""
    url = _parsed("store_url", settings.store_url)
    place = f"{url.host or 'localhost'}:{url.port or 5432}/{url.database}"
    return str(url.database) if is_embedded(settings) else place


def _parsed(name: str, url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidField.of(variable(name), _FORMS) from None
    if not 0 < (parsed.port or 1) < 65536:
        raise InvalidField.of(variable(name), "has a port that is none")
    if "@" in (parsed.host or ""):
        # Else the rest of the password would be shown as the host.
        raise InvalidField.of(variable(name), "has an @ too many; in a password it is %40")
    return parsed


def is_embedded(settings: Settings) -> bool:
    """Whether the store is a file that belongs to this collector alone."""
    return settings.store_url.startswith("sqlite")
