"""A socket that never waits past its patience, however slowly the other side drips."""

from __future__ import annotations

import io
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

try:
    import fcntl
except ImportError:  # not a system with descriptors to move
    fcntl = None  # type: ignore[assignment]

Result = TypeVar("Result")

# Without select's limit on descriptors, and without a descriptor of its own, where there is poll.
_Selector: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.SelectSelector
)


class Patience:
    """How long an attempt may go on; another thread may cut it short."""

    def __init__(self) -> None:
        self._ends_at = 0.0
        # Neither is bound to anything yet: a child that never beats costs its host no descriptor.
        self._alarm: socket.socket | None = None
        self._rope: socket.socket | None = None

    def open(self) -> None:
        """Before the first wait; OSError where there are no descriptors left."""
        alarm, rope = socket.socketpair()
        self._alarm, self._rope = _above_the_standard(alarm), _above_the_standard(rope)
        self._alarm.setblocking(False)
        self._rope.setblocking(False)

    def begin(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def cut(self, seconds: float) -> None:
        """From another thread: at most this long from now on."""
        self._ends_at = min(self._ends_at, time.monotonic() + seconds)
        if (rope := self._rope) is not None:
            with suppress(OSError):
                rope.send(b"!")

    def left(self) -> float:
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left

    def wait_for(self, sock: socket.socket, event: int, share: float = 1.0) -> None:
        """Until `sock` is ready for `event`; TimeoutError once `share` of the time left is gone."""
        assert self._alarm is not None, "it was not opened"
        given_up_at = time.monotonic() + self.left() * share
        with _Selector() as selector:
            selector.register(sock, event)
            selector.register(self._alarm, selectors.EVENT_READ)
            while True:
                until = min(given_up_at, self._ends_at) - time.monotonic()
                if until <= 0:
                    raise TimeoutError("no answer in time")
                ready = [key.fileobj for key, _ in selector.select(until)]
                if sock in ready:
                    return
                if ready:
                    self._alarm.recv(64)

    def close(self) -> None:
        for end in (self._alarm, self._rope):
            if end is not None:
                end.close()
        self._alarm = self._rope = None


class Wire:
    """What `http.client` takes for its socket: connected, perhaps through TLS."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        # Not connected, and it takes no descriptor yet.
        self._made: socket.socket | None = None
        self._readers = 0
        self._is_closed = False

    @property
    def _sock(self) -> socket.socket:
        assert self._made is not None, "it is not connected"
        return self._made

    def connect(self, host: str, port: int) -> None:
        """To the first of the host's addresses that answers."""
        trouble: OSError = OSError(f"{host} has no address")
        addresses = _resolve(host, port, self._patience)
        for nth, (family, kind, protocol, _, address) in enumerate(addresses):
            try:
                self._made = _above_the_standard(socket.socket(family, kind, protocol))
                self._made.setblocking(False)
                self._made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # One that swallows packets leaves a share of the time to the next.
                _reach(self._made, address, self._patience, 1 / (len(addresses) - nth))
                return
            except OSError as failed:
                self._hang_up()
                trouble = failed
        raise trouble

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        """From here on through TLS; in its handshake `host` has to show its certificate."""
        secure = context.wrap_socket(
            self._sock, server_hostname=host, do_handshake_on_connect=False
        )
        self._made = secure
        self._when_ready(secure.do_handshake, selectors.EVENT_READ)

    def sendall(self, payload: Any) -> None:
        unsent = memoryview(payload)
        while unsent:
            rest = unsent
            unsent = rest[self._when_ready(lambda: self._sock.send(rest), selectors.EVENT_WRITE) :]  # noqa: B023

    def read_into(self, buffer: Any) -> int:
        return self._when_ready(lambda: self._sock.recv_into(buffer), selectors.EVENT_READ)

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._readers += 1
        return io.BufferedReader(_Reading(self))

    def close(self) -> None:
        """With its last reader: `http.client` closes it before an answer is read to its end."""
        self._is_closed = True
        if not self._readers:
            self._hang_up()

    def release(self) -> None:
        """One reader has read enough."""
        self._readers -= 1
        if self._is_closed:
            self.close()

    def let_go(self) -> None:
        """In a fork's child: its descriptor and no more, lest the parent's TLS say goodbye."""
        if self._made is not None:
            with suppress(OSError):
                os.close(self._made.detach())

    def _hang_up(self) -> None:
        if self._made is not None:
            self._made.close()

    def _when_ready(self, act: Callable[[], Result], event: int) -> Result:
        while True:
            # Also where bytes keep coming: a drip is no answer.
            self._patience.left()
            try:
                return act()
            except ssl.SSLWantReadError:
                self._patience.wait_for(self._sock, selectors.EVENT_READ)
            except ssl.SSLWantWriteError:
                self._patience.wait_for(self._sock, selectors.EVENT_WRITE)
            except BlockingIOError:
                self._patience.wait_for(self._sock, event)


class _Reading(io.RawIOBase):
    """One answer's bytes; to close it leaves a wire open that others still need."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._wire.read_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._wire.release()


def _resolve(host: str, port: int, patience: Patience) -> list[Any]:
    """The host's addresses, asked for in a thread: the system's resolver knows no deadline."""
    with suppress(socket.gaierror):
        # One that is an address already is asked of nobody.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    found: SimpleQueue[list[Any] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as unknown:
            found.put(unknown)

    try:
        threading.Thread(target=ask, name="worker-presence-resolve", daemon=True).start()
    except RuntimeError:
        # None is to be had, as always while the interpreter shuts down; a leave is sent even then.
        ask()
    try:
        answer = found.get(timeout=patience.left())
    except Empty:
        raise TimeoutError(f"no address for {host} in time") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _reach(sock: socket.socket, address: Any, patience: Patience, share: float) -> None:
    with suppress(BlockingIOError):
        sock.connect(address)
    patience.wait_for(sock, selectors.EVENT_WRITE, share)
    if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))


def _above_the_standard(sock: socket.socket) -> socket.socket:
    """Where the host closed its standard streams, what it prints must not go to the collector."""
    if fcntl is None or sock.fileno() > 2:
        return sock
    with sock:
        descriptor = fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, 3)
        return socket.socket(sock.family, sock.type, sock.proto, fileno=descriptor)
