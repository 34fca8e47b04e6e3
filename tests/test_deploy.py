"""What `deploy/` and `docs/operate.md` say is so: of the code, of each other, of a run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import httpx2
import pytest

from collector import __version__
from collector.app import ROUTES
from collector.cli import collector as command_tree
from collector.cli.supervisor import END_AFTER_SECONDS, KILL_AFTER_SECONDS
from collector.settings import Settings, variable
from tests.processes import COMMAND, Serving
from tests.strict import skip

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "secrets" not in path.parts)
OPERATE = (ROOT / "docs" / "operate.md").read_text()
CLIENTS = (ROOT / "docs" / "clients.md").read_text()
UNIT = (DEPLOY / "systemd" / "collector.service").read_text()
PATHS = {route.path_format for route in ROUTES}
# Until a stop is over, of several processes too.
STOP_SECONDS = Settings().shutdown_seconds + KILL_AFTER_SECONDS + END_AFTER_SECONDS


# Reading the files


class Yaml:
    """The part of YAML that our files keep to, which needs no library; the rest is refused.

    Block mappings and sequences, JSON for everything in brackets or quotes, plain words, comments
    on lines of their own.
    """

    _PAIR = re.compile(r"([\w./-]+):(?: (.+))?")
    _PLAIN = re.compile(r"[\w./](?:[\w./:@=,+-]*[\w./])?")

    def __init__(self, text: str) -> None:
        self._lines = [
            (len(line) - len(line.lstrip(" ")), line.strip(" "))
            for line in text.splitlines()
            if line.strip() and not line.lstrip(" ").startswith("#")
        ]

    def document(self) -> Any:
        value = self._block(0)
        assert not self._lines, f"not understood: {self._lines[0]}"
        return value

    def _block(self, indent: int) -> Any:
        is_sequence = self._lines[0][1].startswith("- ")
        return self._sequence(indent) if is_sequence else self._mapping(indent)

    def _sequence(self, indent: int) -> list[Any]:
        items: list[Any] = []
        while self._lines and self._lines[0][0] == indent and self._lines[0][1].startswith("- "):
            item = self._lines[0][1][2:]
            if self._PAIR.fullmatch(item):
                self._lines[0] = (indent + 2, item)
                items.append(self._mapping(indent + 2))
            else:
                self._lines.pop(0)
                items.append(self._scalar(item))
        return items

    def _mapping(self, indent: int) -> dict[str, Any]:
        pairs: dict[str, Any] = {}
        while self._lines and self._lines[0][0] == indent:
            pair = self._PAIR.fullmatch(self._lines.pop(0)[1])
            assert pair, "neither a pair nor the end of them"
            assert pair[1] not in pairs, f"{pair[1]} is there twice"
            pairs[pair[1]] = self._scalar(pair[2]) if pair[2] else self._below(indent)
        return pairs

    def _below(self, indent: int) -> Any:
        is_deeper = bool(self._lines) and self._lines[0][0] > indent
        return self._block(self._lines[0][0]) if is_deeper else None

    def _scalar(self, text: str) -> Any:
        if text[0] in '["' or text in ("true", "false") or re.fullmatch(r"0|[1-9]\d*", text):
            return json.loads(text)
        assert self._PLAIN.fullmatch(text), f"wants quotes: {text}"
        assert text.lower() not in ("yes", "no", "on", "off", "null", "y", "n"), text
        return text


def yaml(name: str) -> Any:
    return Yaml((DEPLOY / name).read_text()).document()


def instructions() -> list[tuple[str, str]]:
    """The container file, an instruction and its arguments each."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = filter(None, text.replace("\\\n", " ").splitlines())
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def instruction(name: str) -> str:
    """The last of this name: a later one replaces it."""
    return [arguments for each, arguments in instructions() if each == name][-1]


def image_environment() -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", instruction("ENV")))


def directives() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


SERVICES: dict[str, Any] = yaml("compose.yaml")["services"]
OURS = {name: each for name, each in SERVICES.items() if name != "database"}
MANIFESTS: dict[str, Any] = {
    path.stem: yaml(f"kubernetes/{path.name}") for path in sorted(DEPLOY.glob("kubernetes/*.yaml"))
}
PODS: dict[str, Any] = {
    name: MANIFESTS[name]["spec"]["template"]["spec"] for name in ("deployment", "migrate")
}
CONTAINERS: dict[str, Any] = {name: pod["containers"][0] for name, pod in PODS.items()}
SERVE = CONTAINERS["deployment"]


# Names of the code


def test_every_variable_named_is_a_setting() -> None:
    texts = [OPERATE, *(path.read_text() for path in FILES)]
    named = {name for text in texts for name in re.findall(r"COLLECTOR_[A-Z_]+", text)}

    assert named <= {variable(each.name) for each in fields(Settings)}


def shown_lines() -> Iterator[str]:
    """What people are told to type, in the manual and in the head of the compose file."""
    for block, span in re.findall(r"```sh\n(.*?)```|`([^`\n]+)`", OPERATE, re.DOTALL):
        yield from (block or span).splitlines()
    yield from re.findall(r"^#   (.+)$", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE)


def command_lines() -> list[str]:
    """Every call of `collector`, without that word."""
    configured = [json.loads(instruction("CMD")), directives()["ExecStart"][0].split()[1:]]
    configured += [each["command"] for each in OURS.values()]
    configured += [each["args"] for each in CONTAINERS.values()]
    call = re.compile(r"(?:^|[ /])collector ((?!collector )[a-z].*)")
    shown = [found[1] for found in map(call.search, shown_lines()) if found]
    return sorted({*shown, *map(" ".join, configured)})


@pytest.mark.parametrize("line", command_lines())
def test_every_command_named_exists(line: str) -> None:
    words = line.split()
    command: click.Command = command_tree
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found

    options = {name for each in command.params for name in each.opts}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")],
)
def test_probes_ask_real_routes(probe: str, path: str) -> None:
    asked = SERVE[probe]["httpGet"]

    assert asked == {"path": path, "port": SERVE["ports"][0]["name"]}
    assert path in PATHS


def test_paths_named_in_the_manual_are_routes() -> None:
    named = set(re.findall(r"`(/(?:v1|events|openorca|metrics|healthz|readyz)[\w/-]*)`", OPERATE))
    scraped = MANIFESTS["deployment"]["spec"]["template"]["metadata"]["annotations"]

    assert named | {scraped["prometheus.io/path"]} <= PATHS


def test_links_of_the_manual_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", OPERATE)

    assert [each for each in targets if not (ROOT / "docs" / each).exists()] == []


# One number, one name, everywhere


def test_ports_agree() -> None:
    annotations = MANIFESTS["deployment"]["spec"]["template"]["metadata"]["annotations"]
    service = MANIFESTS["service"]["spec"]["ports"][0]
    port = str(Settings().port)

    assert image_environment()["COLLECTOR_PORT"] == instruction("EXPOSE") == port
    assert SERVICES["collector"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert str(SERVE["ports"][0]["containerPort"]) == annotations["prometheus.io/port"] == port
    assert (str(service["port"]), service["targetPort"]) == (port, SERVE["ports"][0]["name"])
    assert f"COLLECTOR_PORT={port}" in directives()["Environment"]
    assert f"value: http://{MANIFESTS['service']['metadata']['name']}:{port}\n" in CLIENTS


# Images

REFERENCE = re.compile(
    r"(?:[a-z0-9.-]+(?::\d+)?/)?[a-z0-9-]+(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"
)
SOME_DIGEST = f"sha256:{'0123456789abcdef' * 4}"


def is_pinned(image: str) -> bool:
    return REFERENCE.fullmatch(image) is not None and "@sha256:" in image


def expanded(image: str, **variables: str) -> str:
    """With its variables; one that is wanted and not given ends it, as compose does."""

    def value(found: re.Match[str]) -> str:
        assert found[1] in variables, found[2]
        return variables[found[1]]

    return re.sub(r"\$\{(\w+)(?::\?([^}]*))?\}", value, image)


def test_the_base_image_is_one_by_its_digest_or_none_at_all() -> None:
    bases = [arguments.split()[0] for name, arguments in instructions() if name == "FROM"]
    variable, _, default = instruction("ARG").partition("=")

    assert instructions()[0][0] == "ARG"
    assert {expanded(each, PYTHON_DIGEST="") for each in bases} == {"python:3.11-slim@"}
    assert all(is_pinned(expanded(each, **{variable: SOME_DIGEST})) for each in bases)
    for unsaid in (default, ""):
        assert not any(REFERENCE.fullmatch(expanded(each, **{variable: unsaid})) for each in bases)
    assert variable in default
    assert f'--build-arg {variable}="${{{variable}:?not found}}" ' in OPERATE


def test_compose_wants_a_digest_of_every_image_that_it_does_not_build() -> None:
    database = SERVICES["database"]["image"]

    assert is_pinned(expanded(database, POSTGRES_DIGEST=SOME_DIGEST))
    with pytest.raises(AssertionError, match="says how to find it"):
        expanded(database)
    for each in OURS.values():
        assert each["pull_policy"] == "never"
        assert each["build"]["dockerfile"] == "deploy/Containerfile"
        assert expanded(each["build"]["args"]["PYTHON_DIGEST"], PYTHON_DIGEST="x") == "x"
        with pytest.raises(AssertionError, match="says how to find it"):
            expanded(each["build"]["args"]["PYTHON_DIGEST"])


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_manifest_has_no_image_until_the_manual_has_put_its_digest_there(
    name: str, tmp_path: Path
) -> None:
    manifest = Path(shutil.copy(DEPLOY / "kubernetes" / f"{name}.yaml", tmp_path))
    (replace,) = re.findall(r"^(sed -i .*) deploy/kubernetes/\*\.yaml$", OPERATE, re.MULTILINE)
    shell = ["sh", "-ec", f"{replace} {manifest}"]

    # Twice: the next version's digest gets there in the same way.
    for _ in range(2):
        subprocess.run(shell, env={"DIGEST": SOME_DIGEST, "PATH": os.defpath}, check=True)

    document = Yaml(manifest.read_text()).document()
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert not REFERENCE.fullmatch(CONTAINERS[name]["image"])
    assert container["image"] == f"registry.example/worker-presence@{SOME_DIGEST}"


def test_no_line_of_any_file_names_an_image_by_its_tag_alone() -> None:
    named = re.compile(r"^(?:FROM|\s*(?:- )?image:) +(.+)$", re.MULTILINE)
    images = [image for path in FILES for image in named.findall(path.read_text())]

    by_tag = [each for each in images if "@" not in each]

    assert len(images) >= 7
    # Built where it runs, and never pulled.
    assert by_tag == [each["image"] for each in OURS.values()]


def test_our_image_is_of_this_version() -> None:
    ours = f"worker-presence:{__version__}"

    assert {each["image"] for each in OURS.values()} == {ours}
    assert MANIFESTS["migrate"]["metadata"]["name"].endswith(__version__.replace(".", "-"))
    assert f"-t {ours} ." in OPERATE


def test_manifests_name_no_namespace_and_select_the_pods_that_serve() -> None:
    template = MANIFESTS["deployment"]["spec"]["template"]["metadata"]["labels"]
    budget, service = MANIFESTS["poddisruptionbudget"]["spec"], MANIFESTS["service"]["spec"]
    spreads = PODS["deployment"]["topologySpreadConstraints"]
    selectors = [MANIFESTS["deployment"]["spec"]["selector"], budget["selector"]]

    assert not any("namespace" in each["metadata"] for each in MANIFESTS.values())
    assert all(each["matchLabels"] == template for each in selectors)
    assert all(each["labelSelector"]["matchLabels"] == template for each in spreads)
    assert service["selector"] == template != MANIFESTS["migrate"]["metadata"]["labels"]


def test_two_replicas_bear_the_loss_of_one() -> None:
    spec = MANIFESTS["deployment"]["spec"]

    assert spec["replicas"] == 2
    assert MANIFESTS["poddisruptionbudget"]["spec"]["maxUnavailable"] == 1
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_the_service_does_not_set_the_port_of_its_pods() -> None:
    """A Service named `collector` would: COLLECTOR_PORT=tcp://…"""
    assert MANIFESTS["service"]["metadata"]["name"] == "collector"
    assert [pod["enableServiceLinks"] for pod in PODS.values()] == [False, False]


def test_everybody_waits_for_a_stop_to_be_over() -> None:
    sleep = int(SERVE["lifecycle"]["preStop"]["exec"]["command"][1])
    variables = {each["name"]: each.get("value") for each in SERVE["env"]}

    assert variables["COLLECTOR_SHUTDOWN_SECONDS"] == str(Settings().shutdown_seconds)
    assert PODS["deployment"]["terminationGracePeriodSeconds"] >= sleep + STOP_SECONDS
    assert int(SERVICES["collector"]["stop_grace_period"].removesuffix("s")) >= STOP_SECONDS
    assert int(directives()["TimeoutStopSec"][0]) >= STOP_SECONDS
    assert instruction("STOPSIGNAL") == directives()["KillSignal"][0] == "SIGTERM"


def test_the_migration_comes_first() -> None:
    waits = {name: each["condition"] for name, each in SERVICES["collector"]["depends_on"].items()}

    assert waits == {"database": "service_healthy", "migrate": "service_completed_successfully"}
    assert (OURS["migrate"]["command"], CONTAINERS["migrate"]["args"]) == (["migrate"], ["migrate"])
    assert OPERATE.index("apply -f deploy/kubernetes/migrate.yaml") < OPERATE.index("kubectl wait")


# Least privilege


def test_nobody_is_root() -> None:
    user = instruction("USER")
    uid = int(user.partition(":")[0])
    contexts = [pod["securityContext"] for pod in PODS.values()]

    assert uid > 0
    assert {each["user"] for each in OURS.values()} == {user}
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", SERVICES["database"]["user"])
    assert all((each["runAsNonRoot"], each["runAsUser"]) == (True, uid) for each in contexts)
    assert directives()["DynamicUser"] == ["yes"]


def test_root_file_systems_are_read_only_and_tmp_is_not() -> None:
    assert all(each["read_only"] for each in SERVICES.values())
    assert all(each["tmpfs"][0].startswith("/tmp:") for each in SERVICES.values())
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in CONTAINERS.values())
    assert all(each["volumeMounts"][0]["mountPath"] == "/tmp" for each in CONTAINERS.values())
    assert directives()["ProtectSystem"] == ["strict"]
    assert directives()["PrivateTmp"] == ["yes"]


def test_there_are_no_privileges_to_gain() -> None:
    for service in SERVICES.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for container in CONTAINERS.values():
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for pod in PODS.values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert directives()["CapabilityBoundingSet"] == [""]


def test_memory_is_bounded_everywhere() -> None:
    assert all("memory" in each["resources"]["limits"] for each in CONTAINERS.values())
    assert all(
        {"cpu", "memory"} == set(each["resources"]["requests"]) for each in CONTAINERS.values()
    )
    assert "mem_limit" in SERVICES["collector"]
    assert "MemoryMax" in directives()


def test_no_file_holds_a_secret() -> None:
    for path in FILES:
        assert not re.search(r"vk_|://[^/\s:@]+:[^/\s@]+@|PASSWORD[=:] *[^\s$/]", path.read_text())


# Programs that are there are run


def test_what_the_image_is_made_of_is_here_and_sent_along() -> None:
    copied = [
        source
        for name, arguments in instructions()
        if name == "COPY" and "--from" not in arguments
        for source in arguments.split()[:-1]
    ]
    sent = re.findall(r"^!(.+)$", (DEPLOY / "Containerfile.dockerignore").read_text(), re.MULTILINE)
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packed = wheel["targets"]["wheel"]

    assert sorted(copied) == sorted(sent)
    assert all((ROOT / source).exists() for source in copied)
    assert {*packed["packages"], *packed["force-include"]} <= set(copied)


def test_the_image_installs_only_what_the_lock_has_a_hash_of() -> None:
    runs = " && ".join(arguments for name, arguments in instructions() if name == "RUN")
    installs = [each for each in runs.split("&&") if each.split()[0] == "pip"]

    assert len(installs) == 4
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)


def test_the_image_is_started_and_checked_without_a_shell() -> None:
    check = re.search(r"CMD (\[.*\])$", instruction("HEALTHCHECK"))

    assert check
    assert json.loads(check[1])[:2] == ["python", "-c"]
    assert json.loads(instruction("ENTRYPOINT")) == ["collector"]


def health(port: str) -> int:
    _, _, check = instruction("HEALTHCHECK").partition("CMD ")
    _python, *arguments = json.loads(check)
    ran = subprocess.run(
        [sys.executable, *arguments], env={"COLLECTOR_PORT": port}, capture_output=True
    )
    return ran.returncode


def test_the_health_check_tells_a_collector_that_runs_from_none(tmp_path: Path) -> None:
    with Serving(f"sqlite:///{tmp_path}/collector.db", tmp_path) as serving:
        port = serving.url.rpartition(":")[2]
        running = health(port)
        serving.stop()

    assert (running, health(port)) == (0, 1)


@pytest.mark.parametrize("name", OURS)
def test_the_password_comes_from_its_file(name: str, tmp_path: Path) -> None:
    program, secret = tmp_path / "collector", tmp_path / "password"
    program.write_text('#!/bin/sh\necho "$PGPASSWORD" "$@"\n')
    program.chmod(0o755)
    words = [word.replace("$$", "$") for word in OURS[name]["entrypoint"]]
    words = [word.replace("/run/secrets/database_password", str(secret)) for word in words]
    search = {"PATH": f"{tmp_path}:{os.defpath}"}

    unread = subprocess.run([*words, "keys", "list"], env=search, capture_output=True)
    secret.write_text("pass word\n")
    said = subprocess.run([*words, "keys", "list"], env=search, capture_output=True, text=True)

    assert (unread.returncode != 0, unread.stdout) == (True, b"")
    assert said.stdout == "pass word keys list\n"


def test_a_crash_leaves_no_memory_behind_in_which_keys_are() -> None:
    assert directives()["LimitCORE"] == ["0"]


def test_systemd_never_gives_a_start_up() -> None:
    before_service = UNIT.partition("[Service]")[0]

    assert "\nStartLimitIntervalSec=0\n" in before_service


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with the program where it is here."""
    if shutil.which("systemd-analyze") is None:
        skip("no systemd-analyze on this machine")
    path = tmp_path / "collector.service"
    path.write_text(UNIT.replace("/opt/collector/bin/collector", str(COMMAND)))
    return path


def test_systemd_takes_the_unit(unit: Path) -> None:
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)

    assert (verified.returncode, verified.stderr) == (0, "")


def test_systemd_calls_the_unit_hardly_exposed(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)]
    judged = subprocess.run(command, capture_output=True, text=True)

    assert judged.returncode == 0, judged.stdout


# Metrics


@pytest.fixture(scope="module")
def exposition(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("metrics")
    with Serving(f"sqlite:///{directory}/collector.db", directory) as serving:
        return httpx2.get(f"{serving.url}/metrics", trust_env=False).text


def samples(exposition: str) -> dict[str, set[str]]:
    """The labels of every series' name, buckets' bounds apart."""
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", exposition, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return {name: labels - {"le"} for name, labels in found.items()}


def test_the_manual_tells_of_every_metric_and_of_no_other(exposition: str) -> None:
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", exposition, re.MULTILINE))
    labels = samples(exposition)
    told = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+?) \| .+ \|$", OPERATE, re.MULTILINE)

    assert sorted(told) == sorted(
        (
            name,
            kind,
            ", ".join(f"`{each}`" for each in sorted(labels.get(name, ()))) or "–",
        )
        for name, kind in kinds.items()
        if not name.endswith("_created")
    )


def test_alerts_ask_for_series_that_there_are(exposition: str) -> None:
    section = OPERATE.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    asked = set(re.findall(r"\b(?:collector|process|python)_\w+", section))

    assert len(asked) > 5
    assert asked <= set(samples(exposition))
