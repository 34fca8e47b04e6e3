"""The workers of this process: one for each agent id, over forks and until the exit."""

from __future__ import annotations

import atexit
import enum
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from contract.producer import log
from contract.producer.clock import Clock
from contract.producer.connection import Address
from contract.producer.description import Description
from contract.producer.liveness import Liveness
from contract.producer.pulse import Alert, Terms
from contract.producer.worker import RegisteredWorker

clock = Clock()


class Unset(enum.Enum):
    """Tells a dispatch name that nobody gave from one that is None on purpose."""

    UNSET = enum.auto()


UNSET: Final = Unset.UNSET

_lock = threading.RLock()
_workers: dict[str, RegisteredWorker] = {}
# Also of those that left, for as long as the host keeps them.
_handles: WeakSet[RegisteredWorker] = WeakSet()
# Also of those that left: this process may take the name again.
_names: set[str] = set()
# Under these ids a process that this one was forked from beats.
_ancestors: set[str] = set()
_told_unused: set[str] = set()


def register_worker(
    agent_name: str,
    *,
    project: str | None = None,
    tenant_id: str | None = None,
    collector_url: str | None = None,
    api_key: str | None = None,
    region: str | None = None,
    version: str | None = None,
    interval: float | None = None,
    local: bool = False,
    db_path: str | None = None,
    dispatch_name: str | Unset | None = UNSET,
    agent_id: str | None = None,
    alive: Callable[[], object] | None = None,
    loop: Any = None,
    on_failure: Alert | None = None,
    on_recovery: Alert | None = None,
) -> RegisteredWorker:
    """Put this process on the roster and keep it there until it leaves or ends.

    Beats go to `collector_url` with `api_key`, from a thread of its own, at once and then every
    15 s, or as the collector asks; `interval` may make them more frequent. What is not given is
    read from VOICEGW_COLLECTOR_URL, VOICEGW_API_KEY, VOICEGW_AGENT_ID, VOICEGW_REGION and
    VOICEGW_PROJECT; the agent id is the host's name at last, the project `default`, the dispatch
    name the agent's.

    With `alive`, or with an event `loop` (asyncio's, or a trio token), it beats only while the
    function says so and the loop comes round. `on_failure` is called with the worker's state after
    three failures in a row, `on_recovery` when they are over; both in a thread of their own.

    `tenant_id`, `local` and `db_path` are taken and not used: the key decides the tenant, and the
    collector has the store. The same id registered again is the same worker, with the newest word.
    """
    _tell_unused(tenant_id=tenant_id, local=local, db_path=db_path)
    description = Description(
        agent_id=_agent_id(_text(agent_id)),
        agent_name=agent_name,
        version=version,
        project=_text(project) or os.environ.get("VOICEGW_PROJECT") or "default",
        region=_text(region) or os.environ.get("VOICEGW_REGION") or None,
        host=socket.gethostname(),
        dispatch_name=agent_name if isinstance(dispatch_name, Unset) else dispatch_name,
        started_at=clock.now(),
    )
    url = _text(collector_url) or os.environ.get("VOICEGW_COLLECTOR_URL") or ""
    key = _text(api_key) or os.environ.get("VOICEGW_API_KEY") or ""
    terms: Terms | None = None
    try:
        _refuse_what_is_no_text(
            agent_name=agent_name,
            agent_id=agent_id,
            project=project,
            region=region,
            version=version,
            dispatch_name=description.dispatch_name,
            collector_url=collector_url,
            api_key=api_key,
        )
        Liveness(alive, loop)
        terms = Terms(
            Address.parse(url), _key(key), _interval(interval), on_failure, on_recovery, alive, loop
        )
    except ValueError as wrong:
        log.warn("worker %s does not beat: %s", description.agent_id, wrong)
    if not isinstance(agent_id, str | None):
        # No name at all: a worker that rightly has the one it fell back to keeps it.
        return RegisteredWorker(description, None, clock, _forget)
    return _enrol(description, terms)


def _enrol(description: Description, terms: Terms | None) -> RegisteredWorker:
    with _lock:
        worker = _workers.get(description.agent_id)
        if worker is None or worker.has_left:
            worker = RegisteredWorker(description, terms, clock, _forget)
            _handles.add(worker)
            _workers[description.agent_id] = worker
            _names.add(description.agent_id)
        else:
            worker.become(description, terms)
        worker.start()
    _leave_with_multiprocessing()
    return worker


def _forget(worker: RegisteredWorker) -> None:
    """It has left; another may have its name by now."""
    with _lock:
        if _workers.get(worker.agent_id) is worker:
            del _workers[worker.agent_id]


def _agent_id(given: str | None) -> str:
    agent_id = given or os.environ.get("VOICEGW_AGENT_ID") or socket.gethostname()
    if agent_id in _ancestors or (not given and _is_multiprocessing_child()):
        return f"{agent_id}-{os.getpid()}"
    return agent_id


def _text(given: object) -> str | None:
    """What is none is refused below; until then nothing of it is asked."""
    return given if isinstance(given, str) else None


def _refuse_what_is_no_text(**given: object) -> None:
    for name, value in given.items():
        if not (isinstance(value, str) or (value is None and name != "agent_name")):
            raise ValueError(f"{name} must be a string, not {type(value).__name__}")


def _key(key: str) -> str:
    key = key.strip()
    if not key:
        raise ValueError("no key is given: set VOICEGW_API_KEY or api_key")
    if not (key.isascii() and key.isprintable()):
        raise ValueError("VOICEGW_API_KEY or api_key has characters that no key has")
    return key


def _interval(seconds: float | None) -> float | None:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is None or (is_number and 0 < seconds < float("inf")):
        return seconds
    raise ValueError(f"interval must be a number of seconds above 0, not {seconds!r}")


def _tell_unused(**given: object) -> None:
    for name, value in given.items():
        if value and name not in _told_unused:
            _told_unused.add(name)
            log.warn("register_worker does not use %s: %s", name, _UNUSED[name])


_UNUSED = {
    "tenant_id": "the key decides the tenant",
    "local": "a worker beats to a collector, also on one machine",
    "db_path": "the collector has the store",
}


def _leave_all() -> None:
    """At the exit: all at once, so that together they take the second that one takes."""
    workers = list(_workers.values())
    for worker in workers:
        worker.begin_leave()
    for worker in workers:
        worker.end_leave()


def _forked() -> None:
    """In a fork's child, whose only thread this is: the parent's locks may be held for ever."""
    global _lock
    _lock = threading.RLock()
    workers = list(_workers.values())
    for handle in list(_handles):
        handle.forked()
    _ancestors.update(_names)
    _workers.clear()
    _names.clear()
    for worker in workers:
        if not worker.has_left:
            _workers[worker.agent_id] = worker
            _names.add(worker.agent_id)
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        # It forgets what it inherited after this, and then asks whoever is registered here.
        util.register_after_fork(_forked, lambda _: _leave_with_multiprocessing())


def _is_multiprocessing_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _leave_with_multiprocessing() -> None:
    """Most of its children end without atexit: it has an exit of its own."""
    if _is_multiprocessing_child():
        sys.modules["multiprocessing.util"].Finalize(None, _leave_all, exitpriority=0)


atexit.register(_leave_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
