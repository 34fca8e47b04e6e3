"""A test that can't run here says what is missing; a strict run does not let it off."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip(reason: str) -> NoReturn:
    """Skip for this reason, or fail for it when TESTS_STRICT=1."""
    if os.environ.get("TESTS_STRICT") == "1":
        pytest.fail(f"TESTS_STRICT: {reason}")
    pytest.skip(reason)
