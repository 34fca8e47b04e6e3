"""Each gunicorn worker is a worker of its own on the roster, busy while it answers a request."""

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

from contract import RegisteredWorker, register_worker

workers = 2
# True or False: the hook below runs in each worker, after the fork and once its application is
# loaded. The master answers no requests and does not register.
preload_app = False


def post_worker_init(worker: Any) -> None:
    # Several processes of one host: the host's name alone would be one worker in conflict.
    host = os.environ.get("VOICEGW_AGENT_ID") or socket.gethostname()
    presence = register_worker("words", version="1.0", agent_id=f"{host}-{worker.pid}")
    worker.wsgi = in_session(worker.wsgi, presence)
    # It leaves at the worker's exit: a graceful stop, a reload, max_requests. One that is killed
    # is told by its silence; its successor has another pid and so another name.


def in_session(app: Callable[..., Any], presence: RegisteredWorker) -> Callable[..., Any]:
    """WSGI middleware: a session from a request's arrival until its answer is sent, or given up."""

    def respond(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterator[bytes]:
        with presence.session():
            body = app(environ, start_response)
            try:
                yield from body
            finally:
                if hasattr(body, "close"):
                    body.close()

    return respond
