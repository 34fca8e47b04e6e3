"""The open-source peer from its wheel: an environment for its producer, one for its server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from conformance.launcher import ROOT
from conformance.target import Unreachable

NAME, VERSION = "voicegateway", "0.27.0"
DIRECTORY = ROOT / ".peer"


def producer() -> Path:
    """The Python of an environment with what its agents install."""
    return _python(DIRECTORY / "venv", f"{NAME}=={VERSION}")


def server() -> Path:
    """The Python of an environment with its server."""
    # It crashes at its start with the fastapi that it would choose itself.
    return _python(DIRECTORY / "server", f"{NAME}[collector]=={VERSION}", "fastapi==0.128.0")


def _python(environment: Path, *pins: str) -> Path:
    """Made once, which needs the network, then kept until the pins change."""
    python, installed = environment / "bin" / "python", environment / "installed"
    if installed.exists() and installed.read_text() == "\n".join(pins):
        return python
    click.echo(f"installing {' and '.join(pins)}", err=True)
    venv = [sys.executable, "-m", "venv", "--clear", str(environment)]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins]
    for command in (venv, pip):
        if subprocess.run(command, stdout=sys.stderr.fileno()).returncode:
            raise Unreachable(f"{NAME} {VERSION} can't be installed")
    installed.write_text("\n".join(pins))
    return python
