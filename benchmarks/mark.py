"""One byte in memory that two processes share: it says what the other did when it was killed."""

from __future__ import annotations

import mmap
from pathlib import Path

_CLEAR, _SET = b"\0", b"\1"


class Mark:
    """Set while the `with` block runs. The page is the kernel's: no kill takes it back."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 1)

    @classmethod
    def create(cls, path: Path) -> Mark:
        path.write_bytes(_CLEAR)
        return cls(path)

    def __enter__(self) -> None:
        self._page[:] = _SET

    def __exit__(self, *_: object) -> None:
        self._page[:] = _CLEAR

    def take(self) -> bool:
        """Whether it was set, and clear it for the next process."""
        was, self._page[:] = self._page[:], _CLEAR
        return was == _SET
