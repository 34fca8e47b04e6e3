"""`collector restore`: put a backup in the embedded store's place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from collector.cli import consent
from collector.cli.backup import embedded_store, facts, progress, show
from collector.cli.invocation import command
from collector.clock import SystemClock
from collector.store import backup as copies

# A restored log that kept its epoch would go on from cursors whose lines it does not have.
ON_POSTGRESQL = (
    "stop the collectors, pg_restore --clean --if-exists --dbname DATABASE FILE, and then mint a "
    "new epoch of the log: UPDATE log_epoch SET epoch = left(md5(random()::text), 8)"
)

EXAMPLES = """
\b
Examples:
  collector restore presence.backup
  collector restore --yes presence.backup
  collector restore --yes --discard --json presence.backup
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--discard", is_flag=True, help="Do not keep the store that is replaced.")
@click.option("--json", "as_json", is_flag=True, help="What the store now holds, as one object.")
def restore(file: Path, yes: bool, discard: bool, as_json: bool) -> None:
    """Put the backup FILE in the embedded store's place.

    Stop its collector first. The store that was there is kept beside it under another name. An
    older backup is brought to this version's schema. The log gets a new epoch, so that consoles
    that hold a cursor of the old one start with a snapshot.
    """
    store = embedded_store(ON_POSTGRESQL)
    if not file.exists():
        raise click.BadParameter(f"there is no file {file}", param_hint="FILE")
    contents = copies.read(file)
    copies.refuse_if_served(store)
    if not as_json:
        show(file, contents)
    if not yes:
        consent.ask(_question(store, discard), err=as_json)
    kept = None if discard or not store.exists() else _kept(store)
    reopened = sorted(copies.revoked_keys(store) - contents.revoked)
    with progress("Restoring") as tell:
        restored = copies.restore(file, store, keep=kept, now=SystemClock().now(), tell=tell)
    if as_json:
        told = {"kept": kept and str(kept), "revoked_since": reopened, **facts(restored)}
        click.echo(json.dumps({"store": str(store), **told}))
        return
    _tell(store, kept, reopened, restored)


def _question(store: Path, discard: bool) -> str:
    if not store.exists():
        return f"Make {store} from it?"
    return f"Replace {store} by it, {'for good' if discard else 'and keep the old one beside'}?"


def _kept(store: Path) -> Path:
    """Beside the store itself, not beside a link to it, so that it can be a name of the same."""
    store = store.resolve()
    return store.with_name(f"{store.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")


def _tell(store: Path, kept: Path | None, reopened: list[str], restored: copies.Contents) -> None:
    if kept is not None:
        click.echo(f"The old store is kept as {kept}.")
    if reopened:
        click.secho(
            f"Keys that were revoked since the backup open again: {', '.join(reopened)}; "
            f"revoke each anew with: {command()} keys revoke KEY_ID",
            fg="yellow",
            err=True,
        )
    click.secho(
        f"{store} is restored, its log's epoch is now {restored.epoch}. "
        f"Start the collector: {command()} serve",
        fg="green",
    )
