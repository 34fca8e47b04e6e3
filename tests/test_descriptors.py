"""At the limit of descriptors: known connections go on, and so does the store."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import make_url

from collector.api.connection import RESERVED_DESCRIPTORS
from tests import processes
from tests.databases import administer
from tests.factories import body
from tests.processes import COMMAND, DEADLINE_SECONDS, Serving, children, create_key, wait_until

LIMIT = 2 * RESERVED_DESCRIPTORS
MORE_THAN_FIT = 4 * LIMIT
CUT_WRITERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""

# Tests that are not coroutines have asynchronous fixtures too.
pytestmark = pytest.mark.usefixtures("anyio_backend")


@pytest.fixture
def narrow(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """A collector that may have few descriptors."""
    command = tmp_path / "collector"
    command.write_text(f'#!/bin/sh\nulimit -n {LIMIT}\nexec {COMMAND} "$@"\n')
    command.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "COMMAND", command)
        serving = Serving(store_url, tmp_path)
    with serving:
        yield serving


class Known:
    """One connection, kept for all that is asked."""

    def __init__(self, serving: Serving, key: str) -> None:
        self._line = http.client.HTTPConnection(
            urlsplit(serving.url).netloc, timeout=DEADLINE_SECONDS
        )
        self._headers = {"Authorization": f"Bearer {key}"}
        self._line.connect()
        # It would be made anew else, and so be unknown.
        self._line.auto_open = 0

    def ask(self, method: str, path: str, content: object = None) -> int:
        sent = None if content is None else json.dumps(content)
        self._line.request(method, path, sent, self._headers)
        with self._line.getresponse() as answer:
            answer.read()
            return answer.status

    def beat(self, agent_id: str) -> int:
        return self.ask("POST", "/v1/agents/heartbeat", body(agent_id))

    def close(self) -> None:
        self._line.close()


@contextmanager
def crowd(serving: Serving) -> Iterator[None]:
    """More connections than there are descriptors, all of which say nothing."""
    where = urlsplit(serving.url)
    with ExitStack() as stack:
        for _ in range(MORE_THAN_FIT):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect((where.hostname, where.port))
        wait_until(lambda: descriptors(serving.pid) >= LIMIT - RESERVED_DESCRIPTORS)
        yield


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def end_the_writer(serving: Serving, store_url: str) -> None:
    if make_url(store_url).get_backend_name() == "sqlite":
        (pid,) = children(serving.pid)
        os.kill(pid, signal.SIGKILL)
    else:
        await administer(store_url, CUT_WRITERS)


async def test_known_connections_and_the_store_go_on_at_the_limit(
    narrow: Serving, store_url: str
) -> None:
    known = Known(narrow, create_key(store_url)["key"])
    assert known.beat("first") == 202

    with closing(known), crowd(narrow):
        await end_the_writer(narrow, store_url)
        beaten = [known.beat(f"worker-{n}") for n in range(50)]
        asked = [known.ask("GET", path) for path in ("/readyz", "/v1/agents", "/metrics")]
        assert descriptors(narrow.pid) < LIMIT

    assert set(beaten) == {202}
    assert asked == [200, 200, 200]


async def test_others_are_let_in_again_when_the_crowd_has_gone(
    narrow: Serving, store_url: str
) -> None:
    key = create_key(store_url)["key"]
    with crowd(narrow):
        pass

    def is_let_in() -> bool:
        newcomer = Known(narrow, key)
        try:
            return newcomer.beat("newcomer") == 202
        except (http.client.HTTPException, ConnectionError):
            return False
        finally:
            newcomer.close()

    wait_until(is_let_in)
