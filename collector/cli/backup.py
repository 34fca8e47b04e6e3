"""`collector backup`: a checked copy of the embedded store, taken while it is served."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from collector.cli import opening
from collector.cli.spinner import waiting
from collector.cli.tables import table
from collector.errors import InvalidField
from collector.store import backup as copies
from collector.store.open import is_embedded, store_name

TENANTS_SHOWN = 20

EXAMPLES = """
\b
Examples:
  collector backup presence.backup
  collector backup --force --json presence.backup
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option("--json", "as_json", is_flag=True, help="What the copy holds, as one object.")
def backup(file: Path, force: bool, as_json: bool) -> None:
    """Copy the embedded store to FILE, also while it is served.

    The copy is the store at one moment. It is read back before it gets its name, and shown: its
    schema, what it holds of each tenant, and the cursor up to which it has the log. It holds the
    keys' digests: only its owner may read it.
    """
    store = embedded_store("pg_dump --format=custom --file FILE DATABASE")
    opening.require_file(opening.settings())
    if not file.parent.is_dir():
        raise click.BadParameter(f"there is no directory {file.parent}", param_hint="FILE")
    if copies.is_part_of(store, file):
        raise click.BadParameter("that is the store itself, or a part of it", param_hint="FILE")
    with progress("Copying") as tell:
        contents = copies.back_up(store, file, replace=force, tell=tell)
    if as_json:
        click.echo(json.dumps({"file": str(file), **facts(contents)}))
        return
    show(file, contents)
    click.secho(f"{store} is backed up to {file}, and was read back.", fg="green")


def embedded_store(instead: str) -> Path:
    """Where the embedded store is; on PostgreSQL say what does this there."""
    chosen = opening.settings()
    if not is_embedded(chosen):
        raise InvalidField(
            f"COLLECTOR_STORE_URL is PostgreSQL ({store_name(chosen)}), which has tools of its "
            f"own for this: {instead}"
        )
    return Path(store_name(chosen))


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, told pages done and pages in all; then a sign of life for the rest."""
    hidden = not sys.stderr.isatty()
    with ExitStack() as shown:
        bar = shown.enter_context(
            click.progressbar(length=1, label=label, file=sys.stderr, hidden=hidden)
        )

        def tell(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)
            if done == total:
                shown.close()
                shown.enter_context(waiting("reading it back"))

        yield tell


def facts(contents: copies.Contents) -> dict[str, Any]:
    return {
        "revision": contents.revision,
        "epoch": contents.epoch,
        "size_bytes": contents.size_bytes,
        **totals(contents),
        "tenants": [tenant._asdict() for tenant in contents.tenants],
    }


def totals(contents: copies.Contents) -> dict[str, int]:
    return {
        name: sum(getattr(tenant, name) for tenant in contents.tenants)
        for name in ("workers", "events", "keys")
    }


def show(file: Path, contents: copies.Contents) -> None:
    """What is in the file, for people."""
    shown = contents.tenants[:TENANTS_SHOWN]
    table(
        ("TENANT", "WORKERS", "EVENTS", "KEYS", "CURSOR"),
        [tuple(map(str, tenant)) for tenant in shown],
        empty="Nobody has beaten yet, and there are no keys.",
    )
    if more := len(contents.tenants) - len(shown):
        click.echo(f"… and {more} more tenants; --json has them all.")
    counts = ", ".join(f"{count} {name}" for name, count in totals(contents).items())
    mebibytes = contents.size_bytes / 2**20
    click.echo(f"{file}: {mebibytes:.1f} MiB, schema {contents.revision}, {counts}.")
