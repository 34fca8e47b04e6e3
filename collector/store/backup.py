"""Copies of an embedded store: taken while a collector serves it, checked, and put in its place.

A copy is one file without a log beside it. It is made under another name and gets its own only
once it was read back, so that a file with that name is a whole one.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from collector.errors import StoreError, StoreTaken, StoreUnavailable
from collector.store import audit
from collector.store.keys import NOBODY
from collector.store.protocol import OPERATOR
from collector.store.schema import HEAD
from collector.store.selfhosted import SelfHostedStore, lock_of, only_collector, translated

# A step copies this many pages, 2 MiB or 4, and then tells how far it is.
STEP_PAGES = 1024
BUSY_SECONDS = 10
# Commands on the store take less.
IN_USE_SECONDS = 2
TABLES = {"alembic_version", "workers", "events", "event_counters", "log_epoch", "keys"}
# What SQLite keeps beside a store, under the store's name and this.
BESIDE = ("-wal", "-shm", "-journal")
RESTORED = "store.restored"

Tell = Callable[[int, int], None]


class NotABackup(StoreError):
    code = "not_a_backup"


class FileExists(StoreError):
    code = "file_exists"


class Tenant(NamedTuple):
    """What a copy holds of one tenant."""

    tenant: str
    workers: int
    events: int
    keys: int
    # Where its log stands, as the feed names it: everything up to here is in the copy.
    cursor: str


class Contents(NamedTuple):
    """What was read back from a file."""

    revision: str
    epoch: str
    size_bytes: int
    tenants: list[Tenant]
    # Ids of keys that open nothing any more.
    revoked: frozenset[str]


def back_up(store: Path, target: Path, *, replace: bool, tell: Tell) -> Contents:
    """Copy the store as it is at this moment to `target`; the collector goes on meanwhile.

    Raise `FileExists` where `target` is something already, unless it is to be replaced.
    """
    if target.exists() and not replace:
        raise _exists(target)
    with translated(), _unnamed(target) as made:
        copy(store, made, tell)
        contents = read(made, name=store)
        _publish(made, target, replace=replace)
    return contents


def restore(backup: Path, store: Path, *, keep: Path | None, now: int, tell: Tell) -> Contents:
    """Put a copy in the store's place, at this version's schema and as a log with a new epoch.

    Old cursors are then seen to be old, and who holds one gets a snapshot; each tenant's audit
    tells of it. No session of the copy goes on: who signed out since must not be signed in again.
    What was there before is kept as `keep`, or lost. Raise `StoreTaken` while a collector serves
    the store or a command has it open, and `NotABackup` for anything that `read` does not take.
    """
    # SQLite keeps its log beside the store itself, and not beside a link to it.
    store = store.resolve()
    with translated():
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _held(store), _unnamed(store) as made:
            read(backup)
            copy(backup, made, tell)
            asyncio.run(_migrate(made))
            _mint_epoch(made, read(made, name=backup), now)
            contents = read(made, name=backup)
            _swap(made, store, keep)
    return contents


def copy(source: Path, target: Path, tell: Tell) -> None:
    """Copy by SQLite's own backup, all of it as it is at one moment.

    The transaction that stays open on the source holds that moment: without it, each commit of
    the collector would make the copy begin anew.
    """
    with closing(_connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.execute("BEGIN")
        old.execute("SELECT count(*) FROM sqlite_master").fetchone()
        old.backup(new, pages=STEP_PAGES, progress=lambda _, left, total: tell(total - left, total))
        # The log's mark is copied too; without it, the copy is a single file.
        new.execute("PRAGMA journal_mode = DELETE")


def read(file: Path, *, name: Path | None = None) -> Contents:
    """All that can be said of a file that is a whole store of ours; else raise `NotABackup`.

    Told under the name that people know, where the file's own is not that.
    """
    name = name or file
    try:
        with closing(_connect(file)) as conn:
            conn.execute("BEGIN")
            _check(conn, name)
            return _contents(conn, file)
    except sqlite3.DatabaseError as error:
        raise NotABackup(
            f"{name} is neither a collector's store nor a backup of one: {error}; "
            "`collector backup` writes those"
        ) from error


def refuse_if_served(store: Path) -> None:
    """Raise `StoreTaken` while a collector serves it."""
    if store.exists():
        with translated(), _held(store.resolve()):
            pass


def is_part_of(store: Path, file: Path) -> bool:
    """Whether the file is the store, or has a name that the store's own log or lock needs."""
    store, file = store.resolve(), file.resolve()
    parts = [store, lock_of(store), *(store.with_name(store.name + suffix) for suffix in BESIDE)]
    return any(file == part or _is_one(file, part) for part in parts)


def revoked_keys(store: Path) -> frozenset[str]:
    """Ids of the keys that this store has revoked; none where it can't be read."""
    try:
        return read(store).revoked
    except StoreError:
        return frozenset()


def _check(conn: sqlite3.Connection, name: Path) -> None:
    names = {name for (name,) in conn.execute("SELECT name FROM sqlite_master")}
    if missing := TABLES - names:
        raise sqlite3.DatabaseError(f"it has no table {min(missing)}")
    (verdict,) = conn.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise NotABackup(f"{name} is damaged: {verdict}; use another backup")
    revision = _one(conn, "SELECT version_num FROM alembic_version")
    if revision > HEAD:
        raise NotABackup(
            f"{name} is of a newer version: its schema is revision {revision}, this version knows "
            f"{HEAD}; update the collector first"
        )


def _contents(conn: sqlite3.Connection, file: Path) -> Contents:
    epoch = _one(conn, "SELECT epoch FROM log_epoch")
    workers, events, keys = (
        dict(conn.execute(f"SELECT tenant_id, count(*) FROM {table} GROUP BY tenant_id"))
        for table in ("workers", "events", "keys")
    )
    heads = dict(conn.execute("SELECT tenant_id, n FROM event_counters"))
    # Without nobody, whose the removed tenants' keys are.
    tenants = sorted({*workers, *events, *keys} - {NOBODY})
    revoked = conn.execute("SELECT id FROM keys WHERE revoked_at IS NOT NULL")
    return Contents(
        revision=_one(conn, "SELECT version_num FROM alembic_version"),
        epoch=epoch,
        size_bytes=file.stat().st_size,
        tenants=[
            Tenant(
                each,
                workers=workers.get(each, 0),
                events=events.get(each, 0),
                keys=keys.get(each, 0),
                cursor=f"{epoch}.{heads.get(each, 0)}",
            )
            for each in tenants
        ],
        revoked=frozenset(key_id for (key_id,) in revoked),
    )


def _one(conn: sqlite3.Connection, statement: str) -> str:
    row = conn.execute(statement).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"nothing is found by {statement}")
    return str(row[0])


async def _migrate(file: Path) -> None:
    store = SelfHostedStore(file)
    try:
        await store.open()
        if await store.behind():
            await store.migrate()
    finally:
        await store.close()


def _mint_epoch(file: Path, copied: Contents, now: int) -> None:
    """Begin a new epoch, and tell each tenant in its audit, with the cursor that it goes on from.

    Nothing of the operator's own is told: not the backup's name, nor where it was.
    """
    epoch = secrets.token_hex(4)
    acts = [
        (tenant.tenant, now, OPERATOR, RESTORED, epoch, json.dumps({"cursor": tenant.cursor}))
        for tenant in copied.tenants
    ]
    with closing(sqlite3.connect(file)) as conn:
        with conn:
            conn.execute("UPDATE log_epoch SET epoch = ?", (epoch,))
            conn.execute("DELETE FROM sessions")
            conn.executemany(f"{audit.WRITE} VALUES (?, ?, ?, ?, ?, ?)", acts)
        conn.execute("PRAGMA journal_mode = DELETE")


def _swap(made: Path, store: Path, keep: Path | None) -> None:
    """A store's log must never meet another store: it goes first.

    The store's name is never without a store: a second name keeps the old one, and one rename
    replaces it.
    """
    _fold(store)
    for suffix in BESIDE:
        beside = store.with_name(store.name + suffix)
        if keep is None:
            beside.unlink(missing_ok=True)
        elif beside.exists():
            beside.rename(keep.with_name(keep.name + suffix))
    _own_alike(made, store)
    if keep is not None and store.exists():
        _name_too(store, keep)
    _sync(made)
    made.replace(store)
    _sync(store.parent)


@contextmanager
def _held(store: Path) -> Iterator[None]:
    """The lock that a collector takes, for the block; it may be new."""
    with closing(only_collector(store)):
        _own_alike(lock_of(store), store)
        yield


def _own_alike(file: Path, store: Path) -> None:
    """Where root works, all that is the store's has its owner, or else its directory's.

    A link is not followed: whoever owns the directory could have put it there.
    """
    owner = (store if store.exists() else store.parent).stat()
    with suppress(PermissionError):
        os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _is_one(file: Path, other: Path) -> bool:
    return file.exists() and other.exists() and file.samefile(other)


def _fold(store: Path) -> None:
    """Bring what its log holds into the store's own file; a damaged one stays as it is.

    Raise `StoreTaken` while any other process has it open: at its end that one removes the log
    by its name, and would remove the new store's.
    """
    if not store.exists():
        return
    try:
        with closing(sqlite3.connect(store, timeout=IN_USE_SECONDS)) as conn:
            conn.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise StoreTaken(f"another command has {store} open; end it first") from error


def _publish(made: Path, target: Path, *, replace: bool) -> None:
    _sync(made)
    if replace:
        made.replace(target)
    else:
        _name_too(made, target)
    _sync(target.parent)


def _name_too(file: Path, name: Path) -> None:
    """Give the file a second name, which must be free; a rename would replace what came there."""
    if name.exists():
        raise _exists(name)
    try:
        os.link(file, name)
    except FileExistsError:
        raise _exists(name) from None
    except OSError:  # a file system without links
        file.rename(name)


def _exists(target: Path) -> FileExists:
    return FileExists(f"{target} is there already; choose another name, or replace it with --force")


@contextmanager
def _unnamed(target: Path) -> Iterator[Path]:
    """A new empty file beside the target that only its owner may read; gone with the block."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise StoreUnavailable(f"can't write to {target.parent}: {error.strerror}") from None
    os.close(descriptor)
    made = Path(name)
    try:
        yield made
    finally:
        for suffix in ("", *BESIDE):
            made.with_name(made.name + suffix).unlink(missing_ok=True)


def _connect(file: Path) -> sqlite3.Connection:
    """To read only; where the file's own log is beside it, that counts too."""
    uri = f"{file.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
