"""Keys that nobody has seen yet are looked up together: one question for all who ask meanwhile.

So a flood of unknown keys costs the store one statement at a time, however many they are.
"""

from __future__ import annotations

import asyncio

from collector.errors import StoreError, StoreUnavailable
from collector.store.protocol import Store
from collector.values import Key

Asked = dict[str, asyncio.Future[Key | None]]


class LookUps:
    """Key ids → keys, as the store has them after the call began."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: Asked = {}
        self._asking: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> Key | None:
        answer = self._asked.get(key_id)
        if answer is None:
            answer = self._asked[key_id] = asyncio.get_running_loop().create_future()
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        # One that goes away must not take the answer from the others.
        return await asyncio.shield(answer)

    async def _ask(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                await self._answer(asked)
        finally:
            self._asking = None

    async def _answer(self, asked: Asked) -> None:
        try:
            found = await self._store.find_keys(asked)
        except BaseException as error:
            known = isinstance(error, StoreError)
            told = error if known else StoreUnavailable(f"keys were not looked up: {error!r}")
            for answer in asked.values():
                answer.set_exception(told)
            if not known:
                raise
        else:
            for key_id, answer in asked.items():
                answer.set_result(found.get(key_id))
