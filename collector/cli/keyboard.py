"""A terminal that is drawn on and answers to single keys, given back as it was whatever happens."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

NAMES = {
    "A": "up",
    "B": "down",
    "H": "home",
    "F": "end",
    "5~": "page up",
    "6~": "page down",
    "1~": "home",
    "4~": "end",
}
# Another screen than the one with the shell's lines on it, without a cursor.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"

_KEY = re.compile(r"\x1b[\[O]([0-9;]*[A-Za-z~])|\x1b(?![\[O])|([^\x1b])", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(?:[\[O][0-9;]*)?\Z")


def keys(typed: str) -> tuple[list[str], str]:
    """The keys that were pressed, and the beginning of one whose rest has not arrived."""
    rest = _UNFINISHED.search(typed)
    whole = typed[: rest.start()] if rest else typed
    found = [NAMES.get(each[1], "") if each[1] else each[2] or "" for each in _KEY.finditer(whole)]
    return [key for key in found if key], typed[len(whole) :]


class Terminal:
    """The screen, and what is typed; others wake whoever waits for a key."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)
        self._typed = ""
        self._is_to_pause = False
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Ours for the block: every signal that would end or stop us gives it back first."""
        handlers = {
            signal.SIGTERM: signal.default_int_handler,
            signal.SIGHUP: signal.default_int_handler,
            signal.SIGTSTP: self._ask_to_pause,
            signal.SIGWINCH: lambda *_: self.wake(),
        }
        others = {number: signal.signal(number, each) for number, each in handlers.items()}
        try:
            self._take()
            yield
        finally:
            self._give_back()
            for number, handler in others.items():
                signal.signal(number, handler)

    def _take(self) -> None:
        tty.setcbreak(self._input)
        _write(ENTER)

    def _give_back(self) -> None:
        # A terminal that was closed takes neither.
        with suppress(OSError):
            _write(LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def _ask_to_pause(self, _number: int, _frame: FrameType | None) -> None:
        # Only that: a frame may be half written.
        self._is_to_pause = True
        self.wake()

    def _pause(self) -> None:
        self._is_to_pause = False
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def wake(self) -> None:
        """From any thread or signal: something is to be shown."""
        with suppress(BlockingIOError):  # which would be: awake already
            os.write(self._waker, b".")

    def pressed(self) -> list[str]:
        """Wait for a key or until woken; the keys, none if woken. At the end of input, a `q`."""
        ready, _, _ = select.select([self._input, self._woken], [], [])
        if self._woken in ready:
            os.read(self._woken, 65536)
        if self._is_to_pause:
            self._pause()
        if self._input not in ready:
            return []
        some = os.read(self._input, 1024)
        if not some:
            return ["q"]
        found, self._typed = keys(self._typed + some.decode(errors="replace"))
        return found


def draw(lines: list[str]) -> None:
    """From the top, each line in the place of the one that was there: nothing flickers."""
    # Erased before it is written: a line that fills the terminal would lose its last character.
    *others, last = lines or [""]
    shown = "".join(f"{ERASE_LINE}{line}\n" for line in others)
    _write(f"{HOME}{shown}{ERASE_BELOW}{last}")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
