"""The open-source peer's server, with workers in its roster."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import load, wrk
from benchmarks.fleet import Fleet
from benchmarks.places import Places
from conformance.peer import serving

# It verifies a key by bcrypt on every request, so it is measured without: that is to its advantage.
CONFIG = """\
providers: {{}}
models: {{}}
cost_tracking: {{enabled: true, db_path: {store}}}
auth: {{local_development: true}}
"""
NO_KEY = ""
CONNECTIONS = 4
# It may take seconds for what was under way when a window ended.
SECONDS = 10
DRAIN_SECONDS = 2


@dataclass(frozen=True)
class Peer:
    url: str
    fleet: Fleet
    file: Path

    async def window(self) -> wrk.Window:
        """One window; what was under way at its end is waited for."""
        target = wrk.Target(self.url, self.file, 0)
        found = await wrk.window(target, SECONDS, CONNECTIONS)
        await asyncio.sleep(DRAIN_SECONDS)
        await self.beat([0])
        return found

    async def beat(self, numbers: Iterable[int]) -> None:
        """One of each of these workers, one after the other."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for n in numbers:
            status = await load.ask(reader, writer, self.fleet.request(n))
            if status >= 300:
                raise wrk.Void(f"the peer answered a beat {status}")
        writer.close()


@asynccontextmanager
async def peer(where: Places, workers: int) -> AsyncIterator[Peer]:
    """As it comes, on its own store, with so many workers in its roster."""
    fleet = Fleet((NO_KEY,), workers, workers)
    with tempfile.TemporaryDirectory(prefix="peer-", dir=where.directory) as name:
        directory = Path(name)
        (directory / "config.yaml").write_text(CONFIG.format(store=directory / "store.db"))
        fleet.write(directory / "fleet")
        async with serving(directory) as url:
            running = Peer(url, fleet, directory / "fleet")
            await running.beat([0])
            await asyncio.to_thread(_copy, directory / "store.db", workers)
            await running.beat([workers - 1])
            yield running


def _copy(store: Path, workers: int) -> None:
    """Worker 0's row once for each of the others: by beats that would take it a minute."""
    with closing(sqlite3.connect(store, timeout=30)) as conn, conn:
        names = [name for _, name, *_ in conn.execute("PRAGMA table_info(workers)") if name != "id"]
        columns = ", ".join(names)
        (row,) = conn.execute(f"SELECT {columns} FROM workers").fetchall()
        places = ", ".join("?" * len(names))
        conn.executemany(
            f"INSERT INTO workers ({columns}) VALUES ({places})",
            ([_renamed(value, n) for value in row] for n in range(1, workers)),
        )


def _renamed(value: object, n: int) -> object:
    return value.replace(f"{0:06}", f"{n:06}") if isinstance(value, str) else value
