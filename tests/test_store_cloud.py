"""What PostgreSQL's driver raises never leaves the store as it is."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from sqlalchemy.exc import InvalidatePoolError

from collector.errors import StoreUnavailable
from collector.store import cloud

GONE = [
    ConnectionResetError("reset"),
    asyncpg.InterfaceError("closed"),
    asyncpg.InternalClientError("cannot switch to state 15"),
    asyncpg.AdminShutdownError("terminating"),
]


class Ended:
    """A connection of the pool that is of no use any more."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run_async(self, _work: object) -> None:
        raise self._error


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
def test_a_connection_that_has_ended_is_replaced(error: Exception) -> None:
    ended: Any = Ended(error)

    with pytest.raises(InvalidatePoolError):
        cloud._look_over(ended)


@pytest.mark.anyio
@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
async def test_a_server_that_is_gone_is_told_in_the_stores_own_words(error: Exception) -> None:
    with pytest.raises(StoreUnavailable):
        async with cloud._translated():
            raise error
