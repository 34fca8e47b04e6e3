"""A module imports from the floors below it, never sideways or up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = {
    "contract": 0,
    "collector": 0,
    "collector.errors": 0,
    "collector.redaction": 1,
    "collector.values": 1,
    "collector.clock": 1,
    "collector.logs": 1,
    "collector.metrics": 1,
    "collector.settings": 1,
    "collector.store.protocol": 2,
    "collector.store": 3,
    "collector.workers": 3,
    "collector.look_ups": 3,
    "collector.keys": 3,
    "collector.sessions": 3,
    "collector.intake": 3,
    "collector.gaps": 3,
    "collector.sweep": 3,
    "collector.batches": 3,
    "collector.events": 3,
    "collector.timeline": 3,
    "collector.retention": 3,
    "collector.removal": 3,
    "collector.quotas": 3,
    "collector.openorca": 3,
    "collector.frugal": 0,
    "collector.turns": 1,
    "collector.places": 3,
    "collector.channels": 3,
    "collector.documents": 3,
    "collector.reader_process": 3,
    "collector.reader": 3,
    "collector.reads": 3,
    "collector.api": 4,
    "collector.app": 5,
    "collector.demo": 5,
    "collector.cli": 6,
    "collector.__main__": 7,
}
# Rooms whose files may see one another; elsewhere on one floor, neither sees the other.
ROOMS = ("collector.store", "collector.api", "collector.demo", "collector.cli", "contract")
SIDEWAYS = {
    ("collector.clock", "collector.values"),
    ("collector.logs", "collector.redaction"),
    ("collector.gaps", "collector.workers"),
    ("collector.keys", "collector.look_ups"),
    ("collector.batches", "collector.documents"),
    ("collector.batches", "collector.workers"),
    ("collector.documents", "collector.openorca"),
    ("collector.documents", "collector.workers"),
    ("collector.channels", "collector.batches"),
    ("collector.channels", "collector.documents"),
    ("collector.channels", "collector.reads"),
    ("collector.events", "collector.batches"),
    ("collector.events", "collector.channels"),
    ("collector.events", "collector.documents"),
    ("collector.events", "collector.reads"),
    ("collector.openorca", "collector.workers"),
    ("collector.quotas", "collector.workers"),
    ("collector.reader", "collector.documents"),
    ("collector.reader", "collector.reader_process"),
    ("collector.reader_process", "collector.documents"),
    ("collector.reader_process", "collector.store"),
    ("collector.reads", "collector.documents"),
    ("collector.reads", "collector.places"),
    ("collector.reads", "collector.reader"),
    ("collector.reads", "collector.reader_process"),
}
# Only the command line and the process that reads open a store; the rest is handed one.
KEEPERS = {
    "sqlalchemy": ("collector.store",),
    "asyncpg": ("collector.store",),
    "sqlite3": ("collector.store",),
    "alembic": ("collector.store",),
    "starlette": ("collector.api", "collector.app"),
    "sse_starlette": ("collector.api",),
    "uvicorn": ("collector.api", "collector.cli"),
    "click": ("collector.cli",),
    "argon2": ("collector.keys",),
    "prometheus_client": ("collector.metrics",),
    "collector.store.open": ("collector.cli", "collector.store", "collector.reader_process"),
}

# What proves a store may see what it promises; its own constants would hide a wrong one.
PROMISES = ("collector.store.protocol.", "collector.values.", "collector.errors.")
PROOFS_OF_A_STORE = sorted((ROOT / "conformance" / "store").glob("*.py"))


def modules() -> dict[str, Path]:
    found = [*(ROOT / "collector").rglob("*.py"), *(ROOT / "contract").rglob("*.py")]
    return {_name(path): path for path in found if "migrations" not in path.parts}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module: str) -> str:
    """The longest entry of FLOORS that the module is, or is in."""
    while module not in FLOORS:
        module = module.rpartition(".")[0]
    return module


def wrong_imports(importer: str, source: str) -> list[str]:
    here = room(importer)
    return [
        name
        for name in imports(source)
        if _breaks_a_floor(here, name) or _lacks_a_keeper(importer, name)
    ]


def _breaks_a_floor(here: str, imported: str) -> bool:
    if imported.split(".")[0] not in ("collector", "contract"):
        return False
    there = room(imported)
    if (here == there and here in ROOMS) or (here, there) in SIDEWAYS:
        return False
    return FLOORS[there] >= FLOORS[here] and (here, there) != ("collector", "collector")


def _lacks_a_keeper(importer: str, imported: str) -> bool:
    return any(
        f"{imported}.".startswith(f"{package}.")
        and not any(f"{importer}.".startswith(f"{keeper}.") for keeper in keepers)
        for package, keepers in KEEPERS.items()
    )


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_from_the_floors_below(module: str) -> None:
    assert wrong_imports(module, modules()[module].read_text()) == []


@pytest.mark.parametrize("path", PROOFS_OF_A_STORE, ids=lambda path: path.stem)
def test_the_proofs_of_a_store_know_its_promises_and_nothing_of_its_making(path: Path) -> None:
    ours = [
        name for name in imports(path.read_text()) if name.startswith(("collector", "contract"))
    ]

    assert [name for name in ours if not name.startswith(PROMISES)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("collector.values", "from collector.workers import project"),
        ("collector.keys", "from collector.store.keys import add"),
        ("collector.keys", "from collector.intake import Intake"),
        ("collector.store.keys", "from collector.keys import mint"),
        ("collector.api.workers", "from collector.app import create_app"),
        ("collector.api.workers", "import sqlalchemy.exc"),
        ("collector.intake", "from starlette.requests import Request"),
        ("collector.app", "from collector.store.open import store_for"),
        ("contract.worker", "from collector.values import Beat"),
    ],
)
def test_an_import_that_breaks_the_house_is_noticed(module: str, line: str) -> None:
    assert wrong_imports(module, line) != []
