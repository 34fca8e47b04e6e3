"""The audit is added to and cut at its old end; a tenant's goes with the tenant."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from collector.store.selfhosted import SelfHostedStore
from collector.values import Act, Audited
from conformance.store import machine
from tests.factories import at, beat
from tests.test_store_conformance import EXAMPLES
from tests.test_store_keys import key

ROOT = Path(__file__).parents[1]
# An act may go only where nothing else of its tenant is left: the tenant is being removed.
TRAPS = """
CREATE TRIGGER no_act_is_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'an act was changed'); END;
CREATE TRIGGER no_act_is_dropped BEFORE DELETE ON audit
WHEN EXISTS (SELECT 1 FROM workers WHERE tenant_id = OLD.tenant_id)
  OR EXISTS (SELECT 1 FROM keys WHERE tenant_id = OLD.tenant_id)
BEGIN SELECT RAISE(ABORT, 'an act was dropped'); END;
INSERT INTO keys (id, tenant_id, digest, scopes, created_at, revision)
VALUES ('KEPTKEPT', 'kept', '', '', 0, 0);
INSERT INTO audit (tenant_id, at, actor, action, subject, detail)
VALUES ('kept', 0, 'operator', 'key.created', 'KEPTKEPT', '{}');"""
CHANGES = re.compile(r"(update|delete)\((audit|audit_table)\b|(UPDATE|DELETE FROM) audit\b")


@pytest.fixture
def trapped(tmp_path: Path, migrated_file: Path) -> Path:
    """A store in which an act that is changed or dropped is an error."""
    file = Path(shutil.copy(migrated_file, tmp_path / "collector.db"))
    with closing(sqlite3.connect(file)) as conn:
        conn.executescript(TRAPS)
    return file


def test_no_call_of_a_store_changes_or_drops_an_act(trapped: Path) -> None:
    machine.prove({"trapped": SelfHostedStore(trapped)}, settings=EXAMPLES)


async def test_what_operators_do_leaves_every_act_before_it_as_it_was(trapped: Path) -> None:
    store = SelfHostedStore(trapped)
    await store.open()
    act = Act("worker.removed", "w")

    acts = list[Audited]()
    for step in (
        lambda: store.add_key(key("AAAAAAAA")),
        lambda: store.use_keys({"AAAAAAAA"}, now=at(1)),
        lambda: store.replace_key("AAAAAAAA", key("BBBBBBBB"), expires_at=at(9)),
        lambda: store.revoke_key("acme", "AAAAAAAA", now=at(2)),
        lambda: store.commit([beat("w")], now=at(2), gone=at(2)),
        lambda: store.remove("acme", ["w"], now=at(3), act=act),
        lambda: store.lock_out("acme", now=at(4)),
    ):
        await step()
        told = await store.audit("acme", before=None, limit=100)
        assert told[len(told) - len(acts) :] == acts
        acts = told
    gone = await store.remove_tenant("acme", now=at(5))
    await store.close()

    assert gone["audit"] == len(acts) >= 4


@pytest.mark.parametrize(
    "statement", ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit WHERE tenant_id = 'kept'"]
)
def test_what_would_change_the_audit_is_noticed(trapped: Path, statement: str) -> None:
    with (
        closing(sqlite3.connect(trapped)) as conn,
        pytest.raises(sqlite3.IntegrityError, match="an act was"),
    ):
        conn.execute(statement)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "collector").rglob("*.py")), ids=lambda path: path.stem
)
def test_no_statement_is_written_that_changes_an_act(path: Path) -> None:
    """On PostgreSQL, too, where there is no trap; a tenant goes by one loop over all its tables."""
    cuts_the_old_end = [("delete", "audit", "")] if path.parts[-2:] == ("store", "audit.py") else []

    assert CHANGES.findall(path.read_text()) == cuts_the_old_end
