"""The suite itself: what it covers, what it shares with what it judges, and what it says of us."""

from __future__ import annotations

import ast
import asyncio
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest
from click.testing import CliRunner

from conformance import report
from conformance.case import Case, all_cases
from conformance.clocks import SECOND, MovedClock
from conformance.command import CONTRACT, conformance, titles, with_matrix
from conformance.drift import Drift, copied, drifts
from conformance.launcher import launched
from conformance.runner import Outcome, Results, run
from conformance.target import Description
from conformance.upkeep import commits, unsettled
from conformance.wire import Reads
from tests.conftest import BACKENDS
from tests.processes import Serving, create_key, wait_until
from tests.strict import skip

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "conformance"
CASES = all_cases()
TARGETS = ["selfhosted", "cloud"]
PASSED = Outcome("R1", "core", "a.b", "a claim", "passed")
KEY = "vk_" + "ABCD2345" * 4


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    """Both targets, judged once for the whole run, whichever process gets to it first."""
    if given := os.environ.get("CONFORMANCE_REPORT"):
        return {run["target"]: _results(run) for run in json.loads(Path(given).read_text())}
    if BACKENDS[1] == "cloud-missing":
        skip("no PostgreSQL")
    shared = tmp_path_factory.getbasetemp().parent
    cache = shared / "conformance.json"
    with (shared / "conformance.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cache.exists():
            runs = [asyncio.run(_judged(target)) for target in TARGETS]
            cache.write_text(report.as_json(runs))
        return {run["target"]: _results(run) for run in json.loads(cache.read_text())}


async def _judged(name: str) -> Results:
    async with launched(name) as target:
        return await run(target, CASES)


def _results(run: dict[str, object]) -> Results:
    cases = run["cases"]
    assert isinstance(cases, list)
    return Results(str(run["target"]), Description(), [Outcome(**case) for case in cases])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
@pytest.mark.parametrize("target", TARGETS)
def test_our_stores_keep_the_contract(results: dict[str, Results], target: str, case: Case) -> None:
    (outcome,) = [each for each in results[target].outcomes if each.name == case.name]

    allowed = {"passed", "skipped"} if "tenantless key" in case.needs else {"passed"}
    assert outcome.result in allowed, f"expected {outcome.expected}, saw {outcome.seen}"


def test_the_contracts_matrix_is_current(results: dict[str, Results]) -> None:
    page = CONTRACT.read_text()

    assert with_matrix(page, *(results[target] for target in TARGETS)) == page


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    assert {case.rule for case in CASES} == set(titles(CONTRACT.read_text()))


def test_claims_are_told_apart() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(re.fullmatch(r"[a-z0-9 ]{15,}", case.claim) for case in CASES)


def _imports(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] in ("collector", "contract")}


@pytest.mark.parametrize(
    "path", sorted(SUITE.rglob("*.py")), ids=lambda path: str(path.relative_to(SUITE))
)
def test_the_suite_shares_nothing_with_what_it_judges(path: Path) -> None:
    if path.name == "launched.py":
        return
    allowed = {"collector.store.protocol", "collector.values", "collector.errors"}

    shared = _imports(path)

    assert shared <= (allowed if path.parent.name == "store" else set())


def test_time_is_moved_only_once_all_wait_and_then_to_the_first_moment() -> None:
    moved: list[int] = []

    async def move(micros: int) -> None:
        moved.append(micros)

    async def scenario() -> list[str]:
        clock, order = MovedClock(move), list[str]()
        clock.enter()
        clock.enter()

        async def sleeper(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            order.append(name)
            clock.leave()

        async def worker() -> None:
            await asyncio.sleep(0.05)
            assert moved == [], "time went on while a case had something to do"
            await sleeper("first", 1)

        await asyncio.gather(sleeper("second", 2.5), worker())
        return order

    assert asyncio.run(scenario()) == ["first", "second"]
    assert moved == [SECOND, 1_500_000]


@pytest.mark.parametrize(
    ("silent", "status", "reason", "is_right"),
    [
        (45.0, "busy", "alive", True),
        (45.000001, "offline", "lost", True),
        (44.9, "offline", "lost", False),
        (45.000001, "idle", "alive", False),
        (100, "offline", "left", True),
        (1, "offline", "left", True),
    ],
)
def test_every_roster_is_judged_by_its_own_time(
    silent: float, status: str, reason: str, is_right: bool
) -> None:
    reads = Reads()
    worker = {"agent_id": "w", "status": status, "reason": reason, "last_seen": 1000.0}

    reads.judge({"server_time": 1000.0 + silent, "workers": [worker]})

    assert (reads.judged, not reads.wrong) == (1, is_right)


def test_a_case_that_ran_out_of_time_does_not_hold_the_others_up() -> None:
    moved: list[int] = []

    async def move(micros: int) -> None:
        moved.append(micros)

    async def scenario() -> None:
        clock = MovedClock(move)
        clock.enter()
        clock.enter()

        async def hangs() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await asyncio.sleep(60)
            clock.leave()

        async def gives_up() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await clock.sleep(3)
            clock.leave()

        await asyncio.gather(hangs(), gives_up())
        clock.enter()
        async with asyncio.timeout(5):
            await clock.sleep(2)

    asyncio.run(scenario())
    assert moved == [2 * SECOND]


def test_a_skipped_core_case_is_no_conformance() -> None:
    skipped = replace(PASSED, result="skipped")
    extended = replace(skipped, level="extended")

    assert Results("t", Description(), [PASSED, extended]).conforms
    assert not Results("t", Description(), [PASSED, skipped]).conforms


def test_a_failed_extended_case_is_conformance_but_not_clean() -> None:
    results = Results(
        "t", Description(), [PASSED, replace(PASSED, level="extended", result="failed")]
    )

    assert (results.conforms, results.is_clean) == (True, False)


def test_no_report_has_a_key_nor_most_of_one() -> None:
    seen = f"{KEY} and {KEY[:-1].lower()} and {KEY[3:-2]} and somebodys-own-token"
    told = Results("t", Description(), [replace(PASSED, result="failed", expected=KEY, seen=seen)])

    hidden = report.redacted(told, [KEY, "somebodys-own-token"])

    for text in (report.as_json([hidden]), report.as_junit([hidden])):
        assert KEY[3:15] not in text.upper()
        assert "somebodys-own-token" not in text
        assert report.HIDDEN in text


def test_junit_has_a_case_for_each_case_and_survives_any_text() -> None:
    failed = replace(PASSED, result="failed", expected="\x00<&>", seen="\ud800")

    text = report.as_junit([Results("t", Description(), [PASSED, failed])])
    suite = xml.fromstring(text)  # noqa: S314

    assert len(suite.findall(".//testcase")) == 2
    assert len(suite.findall(".//failure")) == 1


def test_what_two_targets_do_differently_is_named() -> None:
    one = Results("one", Description(), [PASSED])
    other = Results("other", Description(), [replace(PASSED, result="failed", expected="x")])

    assert report.differences(one, one) == []
    assert [a.name for a, _ in report.differences(one, other)] == ["a.b"]
    assert "**differ**" in report.matrix(one, other, {"R1": "A title"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "either --target or --compare"),
        (["--target", "elsewhere"], "neither selfhosted nor cloud nor partitioned"),
        (["--target", "http://127.0.0.1:1"], "--key and --other-key"),
        (["--target", "selfhosted", "--rule", "R999"], "no case has the rule R999"),
        (["--target", "selfhosted", "--matrix"], "--matrix needs --compare"),
        (
            ["--compare", "selfhosted", "cloud", "--compare", "cloud", "cloud-slow", "--matrix"],
            "--matrix needs --compare, once",
        ),
        (["--target", "http://127.0.0.1:1", "--key", "a", "--other-key", "a"], "are the same"),
        (["--target", "selfhosted", "--report", "nowhere/r.json"], "no directory nowhere"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], said: str) -> None:
    ran = CliRunner().invoke(conformance, arguments)

    assert ran.exit_code == 2
    assert said in ran.output


def test_each_target_of_several_comparisons_is_judged_once() -> None:
    pairs = ["--compare", "selfhosted", "selfhosted-slow", "--compare", "selfhosted-slow"]

    ran = CliRunner().invoke(conformance, [*pairs, "selfhosted", "--rule", "R9"])

    assert ran.exit_code == 0, ran.output
    assert ran.output.count("selfhosted conforms.") == 1
    assert ran.output.count("selfhosted-slow conforms.") == 1
    assert ran.output.count("do not differ in any case") == 2


def test_a_target_that_nobody_answers_at_is_told() -> None:
    keys = ["--key", "a", "--other-key", "b"]

    ran = CliRunner().invoke(conformance, ["--target", "http://127.0.0.1:9", *keys])

    assert ran.exit_code == 3
    assert "http://127.0.0.1:9" in ran.output


@pytest.mark.parametrize(
    ("tenants", "said"),
    [(("one", "one"), "of one tenant"), (("one", None), "--other-key is refused")],
)
def test_keys_that_do_not_do_are_told_before_anything_is_judged(
    tenants: tuple[str, str | None], said: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'collector.db'}"
    keys = [create_key(url, name)["key"] if name else KEY for name in tenants]
    with Serving(url, tmp_path) as serving:
        given = ["--target", serving.url, "--key", keys[0], "--other-key", keys[1]]
        ran = CliRunner().invoke(conformance, given)

    assert ran.exit_code == 4
    assert said in ran.output


def test_a_server_of_another_kind_is_told_before_anything_is_judged(tmp_path: Path) -> None:
    program = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"port (\d+)", server.stdout.readline())
        assert found is not None
        address = f"http://127.0.0.1:{found[1]}"
        ran = CliRunner().invoke(
            conformance, ["--target", address, "--key", "a", "--other-key", "b"]
        )
        server.kill()

    assert ran.exit_code == 3
    assert "does not look like a collector" in ran.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(number: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "conformance", "--target", "selfhosted"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as suite:
        wait_until(lambda: any(tmp_path.glob("conformance-*/collector.db")))
        suite.send_signal(number)
        suite.communicate(timeout=60)

    assert suite.returncode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("program", [["python", "-m", "conformance"], ["collector", "conformance"]])
def test_anybodys_server_is_judged_by_its_address(program: list[str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'collector.db'}"
    scopes = "ingest,read,admin"
    keys = [create_key(url, tenant, scopes)["key"] for tenant in ("tenant-a", "tenant-b")]
    out = tmp_path / "report.json"
    with Serving(url, tmp_path) as serving:
        ran = subprocess.run(
            [
                *(str(Path(sys.executable).with_name(program[0])), *program[1:]),
                *("--target", serving.url, "--key", keys[0], "--other-key", keys[1]),
                *("--rule", "R1", "--rule", "R6", "--rule", "R27", "--report", str(out)),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    (told,) = json.loads(out.read_text())
    assert told["implementation"] == "worker-presence"
    assert {case["result"] for case in told["cases"] if case["rule"] == "R6"} == {"passed"}
    assert not any(key in ran.stdout + out.read_text() for key in keys)


# Drifts


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("drift"))


@pytest.mark.parametrize("drift", drifts(), ids=lambda drift: drift.name)
def test_a_drift_still_applies_and_names_a_rule(tree: Path, drift: Drift) -> None:
    applies = subprocess.run(
        ["git", "apply", "--check", "-"], cwd=tree, input=drift.patch, text=True, check=False
    )

    assert applies.returncode == 0
    assert drift.rule in {case.rule for case in CASES}
    assert drift.target in TARGETS


def test_a_fault_of_one_way_of_a_heartbeat_alone_is_told_as_a_difference(tmp_path: Path) -> None:
    broken = copied(tmp_path)
    (drift,) = drifts(["body-limit-not-on-the-fast-path"])
    assert drift.apply(broken) == ""
    pair = ["--compare", "selfhosted", "selfhosted-slow"]

    ran = CliRunner().invoke(conformance, [*pair, "--rule", "R10", "--tree", str(broken)])

    assert ran.exit_code == 1
    assert "head and body together: 202" in ran.output
    assert "selfhosted and selfhosted-slow differ" in ran.output
    assert "selfhosted-slow conforms" in ran.output


def test_there_are_drifts_of_both_stores_and_of_nearly_every_rule() -> None:
    found = drifts()

    assert len(found) >= 30
    assert {drift.target for drift in found} == set(TARGETS)
    assert len({drift.rule for drift in found}) >= 30


# The page keeps up


def _git(repository: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *who, *arguments], cwd=repository, check=True, capture_output=True)


def _commit(repository: Path, message: str, *files: str) -> None:
    for file in files:
        path = repository / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.read_text() + "x" if path.exists() else "x")
    _git(repository, "add", "-A")
    _git(repository, "commit", "-m", message)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "--quiet")
    _commit(tmp_path, "begin", "contract/CONTRACT.md", "collector/intake.py")
    return tmp_path


def test_a_change_to_ingestion_without_the_page_is_found(repository: Path) -> None:
    _commit(repository, "faster", "collector/store/beats.py")
    _commit(repository, "words", "README.md")

    (found,) = unsettled(repository)

    assert found.ingestion == ["collector/store/beats.py"]


@pytest.mark.parametrize(
    ("message", "files"),
    [
        ("with the page", ["collector/intake.py", "contract/CONTRACT.md"]),
        ("faster\n\nContract: unchanged", ["collector/intake.py"]),
        ("elsewhere", ["collector/cli/serve.py"]),
    ],
)
def test_a_change_that_the_page_knows_of_is_not(
    repository: Path, message: str, files: list[str]
) -> None:
    _commit(repository, message, *files)

    assert unsettled(repository) == []
    assert next(commits(repository)).message.startswith(message)
