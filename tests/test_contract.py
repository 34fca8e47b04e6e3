"""The contract package: words, models, schemas and the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import contract
from collector import places, reads
from collector.api import connection, health, large
from collector.settings import Settings
from collector.values import SECOND
from contract import schema, vocabulary
from contract.worker import Heartbeat

ROOT = Path(__file__).parents[1]
SETTINGS = Settings()
PAGE = (ROOT / "contract" / "CONTRACT.md").read_text()
SEED_FIELDS = {
    "agent_id",
    "agent_name",
    "status",
    "active_sessions",
    "version",
    "project",
    "tenant_id",
    "region",
    "host",
    "started_at",
    "ts",
}
OPTIONAL_FIELDS = {"dispatch_name", "memory_rss_bytes", "memory_total_bytes", "cpu_pct"}


def test_the_schemas_are_what_the_models_say() -> None:
    files = {path.name: path.read_text() for path in schema.DIRECTORY.glob("*.json")}

    assert files == schema.documents(), "run: make schemas"


def test_importing_the_contract_loads_only_the_standard_library() -> None:
    program = "import sys, contract; contract.register_worker; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-IS", "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n{program}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    roots = {name.partition(".")[0] for name in loaded}
    assert roots - sys.stdlib_module_names <= {"contract", "__main__"}
    assert "contract.producer.registry" in loaded


def test_what_is_exported_is_there() -> None:
    assert sorted(contract.__all__) == dir(contract)
    for name in contract.__all__:
        assert getattr(contract, name) is not None
    with pytest.raises(AttributeError):
        contract.nothing  # noqa: B018


def test_the_payload_has_the_seeds_eleven_fields_and_four_more() -> None:
    assert set(Heartbeat.model_fields) == SEED_FIELDS | OPTIONAL_FIELDS
    required = json.loads((schema.DIRECTORY / "heartbeat.json").read_text())["required"]
    assert required == ["agent_id", "agent_name", "status"]


def test_the_page_numbers_its_rules_without_holes() -> None:
    numbers = [int(n) for n in re.findall(r"^### R(\d+) ", PAGE, re.M)]

    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 26


@pytest.mark.parametrize("field", sorted(SEED_FIELDS | OPTIONAL_FIELDS))
def test_the_page_lists_every_field_of_the_payload(field: str) -> None:
    assert re.search(rf"^\| `{field}` \|", PAGE, re.M)


@pytest.mark.parametrize(
    "row",
    [
        f"| Interval of beats | {vocabulary.BEAT_SECONDS} s |",
        f"| Offline after a silence of more than | {vocabulary.TTL_SECONDS} s |",
        f"| Stored stamp ahead of now, before it is a fault | {vocabulary.STAMP_AHEAD_SECONDS} s |",
        f"| Body | {vocabulary.MAX_BODY_BYTES} bytes |",
        f"| Text | {vocabulary.MAX_TEXT} characters |",
        f"| Whole number | {vocabulary.MAX_INTEGER} |",
        f"| `cpu_pct` | {vocabulary.MAX_CPU_PCT} |",
        f"| Time of a client, in epoch seconds | {vocabulary.MAX_TIME_SECONDS} |",
        f"| `limit` of a page | {vocabulary.MAX_PAGE} |",
        f"| Rosters and snapshots of one tenant under way on one process | {SETTINGS.reads}, "
        "and as many first batches of streams |",
        f"| The same of all tenants | {SETTINGS.reads * places.SHARES_IN_ALL} |",
        f"| Bytes of them that are not sent yet | {SETTINGS.read_megabytes} MB of one tenant, "
        f"{SETTINGS.read_megabytes * reads.BYTES_IN_ALL} MB in all |",
        f"| Requests of one tenant that wait for such a place | {places.MAX_WAITING}, "
        f"for {reads.WAIT_SECONDS} s |",
        f"| Client of such an answer is cut off if it takes | less than {large.PART_BYTES} bytes "
        f"in {large.PART_SECONDS} s |",
        f"| Head of a request | {vocabulary.MAX_HEAD_BYTES} bytes and {vocabulary.MAX_HEADERS} "
        "headers |",
        f"| Requests of one connection that wait for earlier answers | {connection.MAX_PIPELINED}, "
        "then it is read no further |",
        "| Request from its first byte to its last, and silence after connecting | "
        f"{SETTINGS.request_seconds} s |",
        f"| Commit under way of a ready collector | {health.COMMIT_HANGS // SECOND} s |",
        f"| Sessions of one key | {vocabulary.MAX_SESSIONS} |",
        f"| `browser` of a session | {vocabulary.MAX_BROWSER} characters |",
    ],
)
def test_the_page_and_the_vocabulary_have_the_same_limits(row: str) -> None:
    assert f"\n{row}\n" in PAGE
