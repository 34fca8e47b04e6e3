"""That the contract's page keeps up: `python -m conformance.upkeep`.

A change to how beats are taken in must touch CONTRACT.md, or say in its commit that the contract
is unchanged by it. Looked at are the commits since the page, or such a word, came last.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

PAGE = "contract/CONTRACT.md"
UNCHANGED = "Contract: unchanged"
# What decides how a beat is taken in, stored and read back.
INGESTION = (
    "collector/api/admission.py",
    "collector/api/auth.py",
    "collector/api/bodies.py",
    "collector/api/heads.py",
    "collector/api/wire.py",
    "collector/api/workers.py",
    "collector/intake.py",
    "collector/keys.py",
    "collector/store/beats.py",
    "collector/store/cloud.py",
    "collector/store/selfhosted.py",
    "collector/store/sqlite_batches.py",
    "collector/store/telling.py",
    "collector/store/writer.py",
    "collector/store/writer_process.py",
    "collector/store/schema.py",
    "collector/store/workers.py",
    "collector/values.py",
    "collector/workers.py",
    "contract/vocabulary.py",
    "contract/worker.py",
    "migrations/versions/",
)


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit says and touches."""

    id: str
    message: str
    files: tuple[str, ...]

    @property
    def settles(self) -> bool:
        says_so = any(line.strip() == UNCHANGED for line in self.message.splitlines())
        return says_so or PAGE in self.files

    @property
    def ingestion(self) -> list[str]:
        return [file for file in self.files if file.startswith(INGESTION)]


def commits(repository: Path) -> Iterator[Commit]:
    """The newest first."""
    log = subprocess.run(
        ["git", "log", "--format=%x00%h%x01%B%x01", "--name-only"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for entry in log.split("\0")[1:]:
        id_, message, files = entry.split("\x01")
        yield Commit(id_, message, tuple(files.split()))


def unsettled(repository: Path) -> list[Commit]:
    """Changes to ingestion that the page has not been looked at for."""
    found: list[Commit] = []
    for commit in commits(repository):
        if commit.settles:
            break
        if commit.ingestion:
            found.append(commit)
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--repository", type=click.Path(path_type=Path, exists=True), default=Path())
def upkeep(repository: Path) -> None:
    """Fail if ingestion changed and nobody looked at the contract."""
    found = unsettled(repository)
    for commit in found:
        click.secho(f"{commit.id} changes {', '.join(commit.ingestion)}", fg="red", err=True)
    if found:
        click.echo(
            f"Update {PAGE}, or say in a commit's message, on a line of its own: {UNCHANGED}",
            err=True,
        )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    upkeep(prog_name="python -m conformance.upkeep")
