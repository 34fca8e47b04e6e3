"""Every command has a help with examples, and every example works: all of it from the tree."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import httpx2
import pytest
from click.testing import CliRunner

from collector.cli import collector
from conformance.postgres import installations
from tests.conftest import BACKENDS
from tests.factories import body
from tests.processes import DEADLINE_SECONDS, Serving, create_key, environment, run, wait_until
from tests.strict import skip

LASTING = {"serve", "demo", "--follow", "--watch", "--every"}
EVERYTHING = "ingest,read,admin"
ON_POSTGRESQL = "postgresql://collector@db/presence"
# The suite's rules take a minute on a server with a clock of its own: one of them will do.
SHORT = ("--rule", "R1")

pytestmark = pytest.mark.usefixtures("anyio_backend")
on_a_shared_store = pytest.mark.parametrize(
    "backend", [name for name in BACKENDS if name != "selfhosted"], indirect=True
)


def tree(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from tree(inner, *path, name)


def help_of(path: tuple[str, ...]) -> str:
    shown = CliRunner().invoke(collector, [*path, "--help"], prog_name="collector")
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def examples(path: tuple[str, ...]) -> list[str]:
    """The lines of the help's block, each a whole command.

    One that goes on over the next line is put together, and what is exported stands before each
    line that follows.
    """
    block = re.search(r"^  Examples:\n((?:    .+\n)+)", help_of(path), re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", block[1]).splitlines() if block else []
    found, exported = list[str](), ""
    for line in map(str.strip, lines):
        if line.startswith("export "):
            exported += line.removeprefix("export ") + " "
        else:
            found.append(exported + line)
    return found


PATHS = dict(tree(collector))
LEAVES = [path for path, command in PATHS.items() if not isinstance(command, click.Group)]
EXAMPLES = sorted({example for path in PATHS for example in examples(path)})
EMBEDDED = [example for example in EXAMPLES if ON_POSTGRESQL not in example]
SHARED = [example for example in EXAMPLES if ON_POSTGRESQL in example]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_help_has_a_sentence(path: tuple[str, ...]) -> None:
    usage, description, *_ = help_of(path).split("\n\n")

    assert usage.startswith(f"Usage: {' '.join(['collector', *path])} ")
    assert re.match(r"  [A-Z].+[.;:]", description)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_examples_of_itself(path: tuple[str, ...]) -> None:
    called = " ".join(path)

    assert examples(path)
    assert all(called in example for example in examples(path))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_option_says_what_it_is_for(path: tuple[str, ...]) -> None:
    options = [each for each in PATHS[path].params if isinstance(each, click.Option)]

    unexplained = [each.name for each in options if not each.help and not each.hidden]

    assert unexplained == []


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("--help", 0, "conformance  Say whether a collector keeps the contract; not"),
        ("conformance --target selfhosted", 1, "pip install 'worker-presence[conformance]'"),
    ],
)
def test_without_the_suites_own_packages_the_rest_is_there(
    command: str, code: int, said: str
) -> None:
    script = "import sys; sys.modules['httpx2'] = None; from collector.cli import main; main()"

    ran = subprocess.run(
        [sys.executable, "-c", script, *shlex.split(command)], capture_output=True, text=True
    )

    assert ran.returncode == code
    assert said in ran.stdout + ran.stderr


class World(NamedTuple):
    """A collector that runs, and a store beside it that nobody serves."""

    serving: Serving
    key: str
    foreign_keys: tuple[str, str]
    store: Path
    key_id: str

    def environment(self) -> dict[str, str]:
        return {
            "VOICEGW_COLLECTOR_URL": self.serving.url,
            "VOICEGW_API_KEY": self.key,
            "COLLECTOR_PORT": "0",
        }

    def beat(self) -> None:
        sent = httpx2.post(
            f"{self.serving.url}/v1/agents/heartbeat",
            json=body("worker-1", project="lobby"),
            headers={"Authorization": f"Bearer {self.key}"},
            trust_env=False,
        )
        assert sent.status_code == 202

    def rewritten(self, example: str) -> str:
        """The example with what is only a stand-in put in."""
        keys = iter(self.foreign_keys)
        told = re.sub("vk_…", lambda _: next(keys), example)
        told = told.replace("https://collector.example", self.serving.url)
        return told.replace("ABCD2345", self.key_id).replace("--port 9000", "--port 0")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[World]:
    place = tmp_path_factory.mktemp("world")
    store = Path(shutil.copy(migrated_file, place / "template.db"))
    key_id = create_key(f"sqlite:///{store}")["id"]
    served = f"sqlite:///{shutil.copy(migrated_file, place / 'served.db')}"
    key = create_key(served, "default", EVERYTHING)["key"]
    ours, theirs = (create_key(served, each, EVERYTHING)["key"] for each in ("ours", "theirs"))
    with Serving(served, place) as serving:
        yield World(serving, key, (ours, theirs), store, key_id)


class Ran(NamedTuple):
    code: int
    output: str
    errors: str


@pytest.mark.parametrize("example", EMBEDDED)
def test_an_example_works(example: str, world: World, tmp_path: Path) -> None:
    if "conformance --compare" in example and not installations():
        skip("no PostgreSQL of ours to start")
    (tmp_path / ".data").mkdir()
    shutil.copy(world.store, tmp_path / ".data" / "collector.db")
    world.beat()

    _works(world.rewritten(example), world.environment(), tmp_path)


@on_a_shared_store
@pytest.mark.parametrize("example", SHARED)
def test_an_example_works_on_postgresql(
    example: str, store_url: str, world: World, tmp_path: Path
) -> None:
    rewritten = world.rewritten(example).replace(ON_POSTGRESQL, store_url)

    _works(rewritten, world.environment(), tmp_path)


def _works(example: str, given: Mapping[str, str], cwd: Path) -> None:
    words = shlex.split(example)
    while re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        given = {**given, name: value}
    if "restore" in words:
        assert run("backup", words[-1], env=given, cwd=cwd).returncode == 0
    if "conformance" in words and "--rule" not in words:
        words += SHORT

    ran = _live(words, given, cwd) if LASTING & set(words) else _end(words, given, cwd)

    assert ran.code == 0, ran.output + ran.errors
    assert "Traceback" not in ran.errors


def _end(words: list[str], given: Mapping[str, str], cwd: Path) -> Ran:
    ran = subprocess.run(
        words,
        env=environment({"HOME": str(cwd), **given}),
        cwd=cwd,
        input="y\n",
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_SECONDS,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def _live(words: list[str], given: Mapping[str, str], cwd: Path) -> Ran:
    """Start it, see that it has something to say and lives on, and end it as a person does."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            words,
            # Its words are not to wait in a buffer until it ends.
            env=environment({"HOME": str(cwd), "PYTHONUNBUFFERED": "1", **given}),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )
        try:
            wait_until(lambda: output.seek(0, 2) > 0 or process.poll() is not None)
            was_alive = process.poll() is None
            process.send_signal(signal.SIGINT)
            code = process.wait(DEADLINE_SECONDS)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        told = Ran(code, output.read(), errors.read())
    assert was_alive, told
    return told
