"""A WSGI application that knows nothing of presence: it counts the words that are posted to it.

Run it in this directory, where gunicorn finds gunicorn.conf.py: gunicorn app:app
"""

from collections.abc import Callable, Iterable
from typing import Any


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    words = environ["wsgi.input"].read().split()
    answer = f"{len(words)} words\n".encode()
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(answer)))]
    start_response("200 OK", headers)
    return [answer]
