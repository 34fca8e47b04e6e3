"""One run's report as a page to read, made from its JSON and from nothing else."""

from __future__ import annotations

from itertools import groupby
from typing import Any

Json = dict[str, Any]

HEAD = """\
# {target}, judged by the contract

{verdict}

## What was run

`make peer-report` writes this page and [`peer-report.json`](peer-report.json), which it is made
from. Nobody edits either.

- The real server of {target}, as it comes, in a virtual environment of its own, on a free port of
  the loopback address and over a new SQLite store, with its keys enforced.
- Five keys of its own making: two of two tenants with every scope, one that may only beat, one that
  may only read, and one of no tenant. They are made at bcrypt's lowest cost, so that no case waits
  for the verification of a key.
- The suite in `conformance/`, the same that judges this collector: real requests, real waiting, no
  hand on its clock, its keys or its store.

Workers' names and the times of the run are left out (`worker-…`, `(now)`), so that two runs can be
compared. What a server says is cut after some 200 characters.

Every rule is in [the contract](../contract/CONTRACT.md). It is stricter in places than what the
peer set out to do: a rule that is broken here says where the two differ, and the cases say how.

## By rule

A rule is *kept* if every case that could be run passed, and *broken* if one failed. *Not offered*
means that no case of it could be run: the server does not say that it offers this, or only somebody
with a hand on its clock, its keys or its store could tell. That counts neither for it nor against.

| rule | | passed | failed | not run |
|---|---|---|---|---|
"""


def page(results: Json, titles: dict[str, str]) -> str:
    """The whole page; titles are those of the contract's rules."""
    by_rule = {
        rule: list(found)
        for rule, found in groupby(results["cases"], key=lambda each: each["rule"])
    }
    rows = [_row(rule, titles[rule], cases) for rule, cases in by_rule.items()]
    broken = [
        _broken(rule, titles[rule], _with(cases, "failed"))
        for rule, cases in by_rule.items()
        if _verdict(cases) == "broken"
    ]
    head = HEAD.format(target=results["target"], verdict=_sum(results, by_rule))
    return head + "\n".join(rows) + "\n\n## What is broken\n\n" + "\n".join(broken)


def _sum(results: Json, by_rule: dict[str, list[Json]]) -> str:
    verdicts = [_verdict(cases) for cases in by_rule.values()]
    rules = ", ".join(
        f"{verdicts.count(each)} {each}" for each in ("kept", "broken", "not offered")
    )
    counts = ", ".join(
        f"{len(_with(results['cases'], each))} {name}"
        for each, name in (("passed", "passed"), ("failed", "failed"), ("skipped", "not run"))
    )
    return f"Of {len(by_rule)} rules: {rules}. Of {len(results['cases'])} cases: {counts}."


def _row(rule: str, title: str, cases: list[Json]) -> str:
    counts = [len(_with(cases, each)) or "" for each in ("passed", "failed", "skipped")]
    verdict = _verdict(cases)
    shown = f"**{verdict}**" if verdict == "broken" else verdict
    return " | ".join(("| " + f"{rule} {title}", shown, *map(str, counts))) + " |"


def _verdict(cases: list[Json]) -> str:
    if _with(cases, "failed"):
        return "broken"
    return "kept" if _with(cases, "passed") else "not offered"


def _broken(rule: str, title: str, failed: list[Json]) -> str:
    claims = [
        f"- {each['claim']} ({each['level']})\n"
        f"  - expected: {_code(each['expected'])}\n"
        f"  - seen: {_code(each['seen'])}\n"
        for each in failed
    ]
    return f"### {rule} {title}\n\n" + "".join(claims)


def _with(cases: list[Json], result: str) -> list[Json]:
    return [each for each in cases if each["result"] == result]


def _code(text: str) -> str:
    """As it was said, on one line."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    if not line:
        return "nothing"
    return f"`` {line} ``" if "`" in line else f"`{line}`"
