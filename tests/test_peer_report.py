"""The report on the open-source peer, as it is committed: what it shows, and what it must not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from conformance.launcher import ROOT
from conformance.peer import JSON, PAGE, steady, written
from conformance.runner import Outcome, Results
from conformance.target import Description
from conformance.wheel import VERSION

DOCS = ROOT / "docs"
KEY = re.compile(r"vk_[A-Za-z0-9]{32}")
FILES = (JSON, PAGE)

# Each breach, with every rule and claim that shows it.
BREACHES = {
    "the worker's ts drives last_seen": [
        ("R3", "last seen is the servers time whatever ts says"),
        ("R3", "a ts in the past makes no worker offline"),
        ("R3", "a ts in the future keeps no worker alive"),
    ],
    "any status and negative sessions are stored and served": [
        ("R6", "no roster has another word"),
        ("R6", "any other status is refused and makes no worker"),
        ("R8", "negative sessions are refused and never served"),
    ],
    "a key of no tenant writes into the tenant that the body names": [
        ("R1", "a key of no tenant writes into none that the body names"),
    ],
    "a tenantless worker's event reaches another tenant's stream": [
        ("R14", "the console of one tenant hears of no tenantless worker"),
    ],
    "bad JSON, an array or a missing field give 500": [
        ("R8", "what is not json is refused with 400"),
        ("R8", "json that is no object is refused with 422"),
        ("R8", "each required field is required"),
    ],
    "going offline emits no event": [
        ("R32", "going offline by silence is told too"),
    ],
    "offline rows keep their sessions": [
        ("R5", "a worker past its time has no sessions"),
        ("R32", "an offline worker is an offline node with no sessions"),
    ],
    "nodes are keyed on agent_name": [
        ("R32", "a nodes id is its agent id"),
    ],
    "a key that may only beat reads the roster": [
        ("R12", "a key that may only beat beats and reads nothing"),
    ],
}
# What the server did, where the claim alone leaves that open.
SEEN = {
    "a worker past its time has no sessions": "7",
    "negative sessions are refused and never served": "active_sessions: -4",
    "no roster has another word": "'purple'",
    "what is not json is refused with 400": "500 ",
    "json that is no object is refused with 422": "500 ",
    "each required field is required": "500 ",
    "a key that may only beat beats and reads nothing": "200 ",
    "a nodes id is its agent id": "['group-…']",
}


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    (only,) = json.loads((DOCS / JSON).read_text())
    return dict(only)


@pytest.mark.parametrize("breach", BREACHES)
def test_each_known_breach_is_a_failed_case(report: dict[str, Any], breach: str) -> None:
    results = {(each["rule"], each["claim"]): each["result"] for each in report["cases"]}

    assert {shown: results.get(shown) for shown in BREACHES[breach]} == dict.fromkeys(
        BREACHES[breach], "failed"
    )


@pytest.mark.parametrize("claim", SEEN)
def test_a_failed_case_says_what_the_server_did(report: dict[str, Any], claim: str) -> None:
    (seen,) = [each["seen"] for each in report["cases"] if each["claim"] == claim]

    assert SEEN[claim] in seen


def test_no_case_failed_for_want_of_an_answer(report: dict[str, Any]) -> None:
    unanswered = [each["claim"] for each in report["cases"] if each["expected"] == "an answer"]

    assert unanswered == []


def test_the_report_says_whom_it_judges(report: dict[str, Any]) -> None:
    assert (report["implementation"], report["version"]) == ("voicegateway", VERSION)
    assert report["capabilities"] == ["ingest key", "openorca", "read key", "tenantless key"]


def test_the_page_is_what_the_report_makes() -> None:
    assert (DOCS / PAGE).read_text() == written(DOCS / JSON)


@pytest.mark.parametrize("name", FILES)
def test_no_key_and_nothing_of_the_machine_is_in_either_file(name: str) -> None:
    text = (DOCS / name).read_text()

    assert KEY.findall(text) == []
    assert [
        word for word in ("127.0.0.1", "localhost", "/tmp", "/home", "/root") if word in text
    ] == []


def test_what_differs_in_every_run_is_left_out() -> None:
    seen = "worker-0a1b2c3d-17 in /dir at 1794812105.29 and 1783200015.5"
    outcome = Outcome("R1", "core", "n", "c", "failed", expected="", seen=seen)

    still = steady(Results("peer", Description(), [outcome]), 1794812000.0, "/dir")

    assert still.outcomes[0].seen == "worker-… in (hidden) at (now) and 1783200015.5"
