"""How this command was called, for messages that say what to run next."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path


def command() -> str:
    """What to type, where the person is, to run this command again."""
    here = Path(sys.argv[0])
    if here.name == "__main__.py":
        return "python -m collector"
    if shutil.which("collector") == str(here):
        return "collector"
    with suppress(ValueError):
        return str(here.absolute().relative_to(Path.cwd()))
    return str(here)
