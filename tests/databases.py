"""Databases on the run's PostgreSQL servers: one migrated a server, emptied after each test."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
from sqlalchemy import make_url

from collector.store.schema import HEAD, metadata

TEMPLATE = "collector_template"

# Whatever a test left behind, connections first: they might hold locks.
_EMPTY = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid();
TRUNCATE {", ".join(metadata.tables)};
INSERT INTO key_revision (one, revision) VALUES (1, 0);
INSERT INTO log_epoch (one, epoch) VALUES (1, 'test');
UPDATE alembic_version SET version_num = '{HEAD}';"""


class Databases:
    """Those that this process made, on the servers it was told of."""

    def __init__(self, servers: dict[str, str]) -> None:
        self._servers = servers
        self._migrated: dict[str, str] = {}
        self._made: list[tuple[str, str]] = []

    async def migrated(self, backend: str) -> str:
        """The one that tests share, each after it was emptied."""
        if backend not in self._migrated:
            self._migrated[backend] = await self.made(backend, TEMPLATE)
        return self._migrated[backend]

    async def made(self, backend: str, template: str) -> str:
        """The URL of a new one."""
        server, name = self._servers[backend], f"test_{uuid4().hex}"
        await administer(server, f"CREATE DATABASE {name} TEMPLATE {template}")
        self._made.append((server, name))
        return make_url(server).set(database=name).render_as_string(hide_password=False)

    async def drop(self) -> None:
        for server, name in self._made:
            await administer(server, f"DROP DATABASE {name} WITH (FORCE)")


async def empty(url: str) -> None:
    await administer(url, _EMPTY)


async def administer(url: str, commands: str) -> None:
    plain = make_url(url).set(drivername="postgresql")
    connection = await asyncpg.connect(plain.render_as_string(hide_password=False))
    try:
        await connection.execute(commands)
    finally:
        await connection.close()
