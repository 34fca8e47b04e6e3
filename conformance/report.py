"""What a run found: for people, for machines, and as the matrix that the contract shows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from xml.etree import ElementTree as xml

import click

from conformance.runner import Outcome, Results

COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}
HIDDEN = "vk_(hidden)"
# Anything like a key of ours, whole or not.
_KEY = re.compile(r"(?i)vk_[a-z2-7]{8,}")
# From so many characters on, a part of a key tells too much.
TELLING = 12
LONGEST = 300


def redacted(results: Results, keys: Iterable[str]) -> Results:
    """The same without any key, ours or the target's own."""
    secrets = _parts(keys)

    def hide(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return _cut(_KEY.sub(HIDDEN, text))

    return replace(
        results,
        outcomes=[
            replace(each, expected=hide(each.expected), seen=hide(each.seen))
            for each in results.outcomes
        ],
    )


def _parts(keys: Iterable[str]) -> list[str]:
    """The keys and so much of each as would still tell it, the longest first."""
    wholes = {whole for key in keys for whole in (key, key.removeprefix("vk_"))}
    parts = {whole[:length] for whole in wholes for length in range(TELLING, len(whole) + 1)}
    return sorted(parts | {whole for whole in wholes if whole}, key=len, reverse=True)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def show(results: Results, *, verbose: bool) -> None:
    """Rule by rule; what passed in one line a rule unless asked for more."""
    click.echo(f"\n{results.target}: {results.description}\n")
    for rule, found in groupby(results.outcomes, key=lambda each: each.rule):
        outcomes = list(found)
        _show_rule(rule, outcomes)
        for outcome in outcomes:
            if verbose or outcome.result == "failed":
                _show_case(outcome)
    _show_skipped(results)
    click.echo(f"\n{verdict(results)}")


def verdict(results: Results) -> str:
    if not results.judged:
        return f"Nothing could be judged of {results.target}: all its cases were skipped."
    counts = "; ".join(
        f"{level}: {_tally(results.of(level))}"
        for level in ("core", "extended")
        if results.of(level)
    )
    return f"{results.target} {'conforms' if results.conforms else 'does not conform'}. {counts}."


def _tally(outcomes: Sequence[Outcome]) -> str:
    counts = {each: _count(outcomes, each) for each in COLOURS}
    return ", ".join(f"{count} {result}" for result, count in counts.items() if count)


def _show_skipped(results: Results) -> None:
    """By what is missing: some of it the reader can give."""
    skipped = [each for each in results.outcomes if each.result == "skipped"]
    if not skipped:
        return
    click.secho(f"\n{len(skipped)} cases were skipped:", fg="yellow")
    for missing, count in Counter(each.seen for each in skipped).most_common():
        click.echo(f"  {count:3}  {missing}")


def _show_rule(rule: str, outcomes: Sequence[Outcome]) -> None:
    worst = _worst(outcomes)
    click.secho(f"{rule:4} {worst:8}", fg=COLOURS[worst], bold=worst == "failed", nl=False)
    click.echo(_tally(outcomes))


def _show_case(outcome: Outcome) -> None:
    click.secho(f"     {outcome.result:8}", fg=COLOURS[outcome.result], nl=False)
    click.echo(f"{outcome.claim} ({outcome.level})")
    for name, text in (("expected", outcome.expected), ("seen", outcome.seen)):
        if text:
            click.echo(f"              {name:9}{text}")


def as_json(runs: Sequence[Results]) -> str:
    return json.dumps([_run(each) for each in runs], indent=2, ensure_ascii=False) + "\n"


def _run(results: Results) -> dict[str, object]:
    described = asdict(results.description)
    return {
        "target": results.target,
        **described,
        "capabilities": sorted(results.description.capabilities),
        "conforms": results.conforms,
        "cases": [asdict(each) for each in results.outcomes],
    }


def as_junit(runs: Sequence[Results]) -> str:
    root = xml.Element("testsuites")
    for results in runs:
        suite = xml.SubElement(
            root,
            "testsuite",
            name=results.target,
            tests=str(len(results.outcomes)),
            failures=str(_count(results.outcomes, "failed")),
            skipped=str(_count(results.outcomes, "skipped")),
        )
        for outcome in results.outcomes:
            case = xml.SubElement(
                suite, "testcase", classname=f"{outcome.rule}.{outcome.level}", name=outcome.claim
            )
            if outcome.result == "failed":
                failure = f"expected {outcome.expected}, saw {outcome.seen}"
                xml.SubElement(case, "failure", message=_printable(failure))
            if outcome.result == "skipped":
                xml.SubElement(case, "skipped", message=_printable(outcome.seen))
    return xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def differences(one: Results, other: Results) -> list[tuple[Outcome, Outcome]]:
    """Cases with another result, or that broke in another way."""
    theirs = {each.name: each for each in other.outcomes}
    pairs = [(each, theirs[each.name]) for each in one.outcomes if each.name in theirs]
    return [(a, b) for a, b in pairs if (a.result, a.expected) != (b.result, b.expected)]


def show_differences(one: Results, other: Results) -> None:
    found = differences(one, other)
    if not found:
        click.secho(f"{one.target} and {other.target} do not differ in any case.", fg="green")
        return
    click.secho(f"{one.target} and {other.target} differ:", fg="red", bold=True)
    for a, b in found:
        click.echo(f"  {a.rule:4} {a.claim}")
        for target, outcome in ((one.target, a), (other.target, b)):
            told = f": expected {outcome.expected}, saw {outcome.seen}" if outcome.seen else ""
            click.echo(f"         {target}: {outcome.result}{told}")


def matrix(one: Results, other: Results, titles: dict[str, str]) -> str:
    """A row a rule: how many of its cases each target passes."""
    rows = [
        f"| rule | {one.target} | {other.target} | |",
        "|---|---|---|---|",
    ]
    for rule, title in titles.items():
        cells = [_cell([o for o in each.outcomes if o.rule == rule]) for each in (one, other)]
        verdict = "the same" if cells[0] == cells[1] else "**differ**"
        rows.append(f"| {rule} {title} | {cells[0]} | {cells[1]} | {verdict} |")
    return "\n".join(rows) + "\n"


def _cell(outcomes: Sequence[Outcome]) -> str:
    run = len(outcomes) - _count(outcomes, "skipped")
    return f"{_count(outcomes, 'passed')} of {run}"


def _worst(outcomes: Sequence[Outcome]) -> str:
    results = {each.result for each in outcomes}
    return next(each for each in ("failed", "skipped", "passed") if each in results)


def _count(outcomes: Sequence[Outcome], result: str) -> int:
    return sum(each.result == result for each in outcomes)


def _printable(text: str) -> str:
    """XML has no place for most control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
