"""Completion, as a shell does it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import DEADLINE_SECONDS, environment, run
from tests.strict import skip


def completed(*words: str, home: Path) -> list[str]:
    """What bash offers for the last of these words, set up by the line that the help gives."""
    if shutil.which("bash") is None:
        skip("bash is not installed")
    (line,) = [
        each.split("bash", 1)[1].strip()
        for each in run("completion", "--help", env={}).stdout.splitlines()
        if each.strip().startswith("bash ")
    ]
    script = f"""
        {line}
        source ~/.bashrc
        COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}
        _collector_completion collector
        printf '%s\\n' "${{COMPREPLY[@]}}" """
    ran = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=environment({"HOME": str(home)}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    assert completed("collector", "do", home=tmp_path) == ["doctor"]
    assert completed("collector", "de", home=tmp_path) == ["demo"]
    assert completed("collector", "agents", "pr", home=tmp_path) == ["prune"]
    assert completed("collector", "agents", "top", "--sort", "c", home=tmp_path) == ["cpu"]
    assert completed("collector", "beat", "--sta", home=tmp_path) == ["--status"]
    assert completed("collector", "beat", "--status", "o", home=tmp_path) == ["offline"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    printed = run("completion", shell, env={})

    assert (printed.returncode, printed.stderr) == (0, "")
    assert f"_COLLECTOR_COMPLETE={shell}_complete" in printed.stdout


def test_another_shell_is_wrong_usage() -> None:
    assert run("completion", "tcsh", env={}).returncode == 2
