"""Several collector processes behind one port: started, watched and stopped together."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from collector.cli.watchdog import Watchdog
from collector.metrics import DIRECTORY, forget_process
from collector.settings import Settings

RESTART_SECONDS = 1.0
# Each child ends by itself within COLLECTOR_SHUTDOWN_SECONDS; one that stands still is killed after
# these more.
KILL_AFTER_SECONDS = 2
# And we end by ourselves this long after that, whatever hangs here; the children see it.
END_AFTER_SECONDS = 1
_log = logging.getLogger(__name__)


class Supervisor:
    """The children share the listening sockets; one that dies is replaced.

    Each child holds the end of a pipe whose other end is ours: should we be killed, it ends too.
    """

    def __init__(self, settings: Settings, listeners: Sequence[socket.socket], count: int) -> None:
        self._settings = settings
        self._listeners = listeners
        self._count = count
        self._stopping = asyncio.Event()
        self._lifeline = os.pipe()
        self._loop = asyncio.get_running_loop()
        grace = settings.shutdown_seconds + KILL_AFTER_SECONDS + END_AFTER_SECONDS
        self._watchdog = Watchdog(grace, lambda: None)
        # From now on, not only from the first child on: a signal ends it in order.
        # Not the loop's own handlers: the watchdog starts although the loop hangs.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop_all)

    def _stop_all(self, _number: int, _frame: FrameType | None) -> None:
        self._watchdog.start()
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        with _metrics_directory() as directory:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._count):
                    group.create_task(self._keep_one(directory))

    async def _keep_one(self, directory: str) -> None:
        while not self._stopping.is_set():
            child = await self._start(directory)
            ended = asyncio.create_task(child.wait())
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if ended.done():
                _log.error(
                    "process %d ended with %s; starting another", child.pid, child.returncode
                )
                forget_process(child.pid, directory)
                await self._pause()
            else:
                await self._stop(child, ended)

    async def _start(self, directory: str) -> asyncio.subprocess.Process:
        inherited = (self._lifeline[0], *(each.fileno() for each in self._listeners))
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "collector", "serve"),
            *("--inherit", ",".join(map(str, inherited))),
            pass_fds=inherited,
            env=os.environ | {DIRECTORY: directory},
            stdin=subprocess.DEVNULL,
            # Its own group: a Ctrl-C reaches us, and we stop the children in order.
            start_new_session=True,
        )

    async def _stop(self, child: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
        child.terminate()
        grace = self._settings.shutdown_seconds + KILL_AFTER_SECONDS
        done, _ = await asyncio.wait([ended], timeout=grace)
        if not done:
            child.kill()
            await ended

    async def _pause(self) -> None:
        """Before another try; a stop ends it at once."""
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([stopping], timeout=RESTART_SECONDS)
        stopping.cancel()


@contextmanager
def _metrics_directory() -> Iterator[str]:
    """Where the processes keep their figures, so that any of them can tell them all."""
    directory = tempfile.mkdtemp(prefix="collector-metrics-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
