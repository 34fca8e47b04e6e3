"""Collectors as processes of their own, found and ended by their own pid."""

from __future__ import annotations

import atexit
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import usage

# What users run, from the same environment as we do.
SERVE = (str(Path(sys.executable).with_name("collector")), "serve")
# The settings of a collector, each by the name of its variable; none unless told.
UNCHANGED: Mapping[str, str] = {}
_ADDRESS = re.compile(r"listens on http://([\d.]+):(\d+)")


@dataclass(frozen=True)
class Process:
    """A serving collector."""

    popen: subprocess.Popen[str]
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def kill(self) -> None:
        """SIGKILL, also for whoever writes for it, and wait until it is gone."""
        for pid in random.sample(family := usage.family(self.popen.pid), len(family)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """The end that operators give it; one that hangs is killed."""
        self.popen.terminate()
        try:
            self.popen.wait(15)
        except subprocess.TimeoutExpired:
            self.popen.kill()
        self._reap()

    def _reap(self) -> None:
        self.popen.wait()
        if self.popen.stdout is not None:
            self.popen.stdout.close()


def start(
    command: Sequence[str],
    *,
    store_url: str,
    log: Path,
    settings: Mapping[str, str] = UNCHANGED,
) -> Process:
    """Run a variant of `collector serve` on a free port; return once it answers."""
    with log.open("ab") as errors:
        popen = subprocess.Popen(
            command,
            env={**_environment(store_url), **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    # Whatever ends this run, it leaves no collector behind.
    atexit.register(popen.kill)
    assert popen.stdout is not None
    for line in popen.stdout:
        if found := _ADDRESS.search(line):
            return Process(popen, found[1], int(found[2]))
    popen.wait()
    raise click.ClickException(f"the collector did not start:\n{log.read_text()[-2000:]}")


def end_on_sigterm() -> None:
    """Leave through every `finally`, so that no child and no directory stays behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _environment(store_url: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("COLLECTOR_")}
    return ours | {"COLLECTOR_STORE_URL": store_url, "COLLECTOR_PORT": "0"}
