"""The suite against the real open-source peer: its own server, from an environment of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import click
import httpx2

from conformance import report, wheel
from conformance.case import all_cases
from conformance.command import CONTRACT, titles
from conformance.launcher import ROOT
from conformance.page import page
from conformance.runner import Outcome, Results, run
from conformance.target import Keys, Target, Unreachable
from conformance.wheel import NAME, VERSION

JSON, PAGE = "peer-report.json", "peer-report.md"
EVERYTHING = "admin,ingest,read,write"
START_SECONDS = 60
STOP_SECONDS = 15

CONFIG = """\
providers: {{}}
models: {{}}
cost_tracking: {{enabled: true, db_path: {store}}}
auth: {{enforcement: enforce}}
"""
COMMAND = "from voicegateway.cli import app; app()"
# Its own command, at bcrypt's lowest cost: the server verifies a key on every request, and at its
# usual cost the suite would wait for that alone. The server itself is run as it comes.
MINT = f"""\
from voicegateway.repository import api_keys_repository
api_keys_repository._BCRYPT_COST = 4
{COMMAND}
"""
KEY = re.compile(r"^vk_[A-Z2-7]{32}$", re.MULTILINE)
# What differs in every run: the workers' names, and times of that day.
WORKER = re.compile(r"(?<=[a-z])-[0-9a-f]{8}-\d+")
TIME = re.compile(r"\b\d{10}\.\d+")
DAY_SECONDS = 86_400

EXAMPLES = """
\b
Examples:
  python -m conformance.peer
  python -m conformance.peer --into /tmp
  python -m conformance.peer --page-only

\b
Exit codes:
  0 the report is written, whatever it says of the peer,
  2 wrong usage, 3 the peer can't be installed or started
"""


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--into",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=ROOT / "docs",
    help="The directory to write to, docs/ unless told.",
)
@click.option("--page-only", is_flag=True, help=f"Only write {PAGE} anew, from {JSON}.")
def peer(into: Path, page_only: bool) -> None:
    """Say, rule by rule, what the peer keeps of the contract.

    Installs it once (needs the network), starts its server on a free port over a new store, and
    runs every case against it as against any server of somebody else's: for about two minutes.
    """
    if not page_only:
        try:
            # Installs it: later calls find it there.
            wheel.server()
            results = asyncio.run(_judge())
        except Unreachable as error:
            click.secho(f"peer: {error}", fg="red", err=True)
            sys.exit(3)
        (into / JSON).write_text(report.as_json([results]))
        _say(report.verdict(results))
    (into / PAGE).write_text(written(into / JSON))
    _say(f"written: {into / PAGE}")


def written(json_file: Path) -> str:
    """The page that the results in this file make."""
    (results,) = json.loads(json_file.read_text())
    return page(results, titles(CONTRACT.read_text()))


async def _judge() -> Results:
    with tempfile.TemporaryDirectory(prefix="conformance-peer-") as name:
        directory = Path(name)
        keys = await _mint_all(directory)
        async with serving(directory) as url:
            target = Target(name=f"{NAME} {VERSION}", url=url, keys=keys)
            found = report.redacted(await _run(target), keys.all())
    described = replace(found.description, implementation=NAME, version=VERSION)
    return steady(replace(found, description=described), time.time(), url, name)


async def _run(target: Target) -> Results:
    cases = all_cases()
    with click.progressbar(
        length=len(cases), label=target.name, file=sys.stderr, show_pos=True
    ) as progress:

        def tell(_outcome: Outcome) -> None:
            progress.update(1)

        return await run(target, cases, tell)


def steady(results: Results, now: float, *hidden: str) -> Results:
    """The same without what differs in every run, and without these words of this machine."""

    def around_now(found: re.Match[str]) -> str:
        return "(now)" if abs(float(found[0]) - now) < DAY_SECONDS else found[0]

    def still(text: str) -> str:
        for word in hidden:
            text = text.replace(word, "(hidden)")
        return TIME.sub(around_now, WORKER.sub("-…", text))

    return replace(
        results,
        outcomes=[
            replace(each, expected=still(each.expected), seen=still(each.seen))
            for each in results.outcomes
        ],
    )


async def _mint_all(directory: Path) -> Keys:
    _say("making its keys")
    config = CONFIG.format(store=directory / "store.db")
    (directory / "config.yaml").write_text(config)
    return Keys(
        a=await _mint(directory, EVERYTHING, "tenant-a"),
        b=await _mint(directory, EVERYTHING, "tenant-b"),
        ingest=await _mint(directory, "ingest", "tenant-a"),
        read=await _mint(directory, "read", "tenant-a"),
        tenantless=await _mint(directory, EVERYTHING),
    )


async def _mint(directory: Path, scopes: str, tenant: str | None = None) -> str:
    order = ["keys", "create", "-n", "conformance", "-s", scopes]
    order += ["-t", tenant] if tenant else []
    log = directory / "keys.log"
    process = await _start(directory, log, MINT, *order)
    await process.wait()
    keys = KEY.findall(_end_of(log))
    if len(keys) != 1:
        raise Unreachable(f"{NAME} made no key: {_end_of(log)}")
    return str(keys[0])


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[str]:
    """Its server at this address, on the config.yaml of this directory; ended with the block."""
    _say("starting its server")
    port, log = _free_port(), directory / "server.log"
    order = ("serve", "--host", "127.0.0.1", "--port", str(port))
    process = await _start(directory, log, COMMAND, *order)
    try:
        await _wait_until_ready(process, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        await _end(process)


async def _start(
    directory: Path, log: Path, program: str, *order: str
) -> asyncio.subprocess.Process:
    """One of its commands, on the store and the settings of this directory alone."""
    command = [str(wheel.server()), "-c", program, *order]
    settings = {"HOME": str(directory), "VOICEGW_DB_PATH": str(directory / "store.db")}
    with log.open("wb") as output:
        return await asyncio.create_subprocess_exec(
            *(*command, "-c", str(directory / "config.yaml")),
            env={"PATH": os.environ["PATH"], **settings},
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


async def _wait_until_ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        while process.returncode is None and time.monotonic() < deadline:
            try:
                await http.get("/openorca/runtime-info")
            except httpx2.HTTPError:
                await asyncio.sleep(0.1)
            else:
                return
    raise Unreachable(f"{NAME} does not start: {_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    peer()
