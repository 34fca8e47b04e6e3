"""A server that accepts every beat and does nothing else: `python -m benchmarks.acceptor`.

It says its port, then with every line that it is given how many beats it has accepted. It ends with
its input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from contract.vocabulary import BEAT_SECONDS


class Door(BaseHTTPRequestHandler):
    """As a collector answers, on a connection that is kept."""

    protocol_version = "HTTP/1.1"
    # One write an answer: two would wait for one another.
    wbufsize = -1
    disable_nagle_algorithm = True
    accepted = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = {"status": "accepted", "server_time": time.time()}
        body = json.dumps(answer | {"next_beat_seconds": BEAT_SECONDS}).encode()
        self.send_response(202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        Door.accepted += 1

    def log_message(self, format: str, *args: object) -> None:
        """A line for each beat would be the most of its work."""


def main() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        for _ in sys.stdin:
            print(Door.accepted, flush=True)
        server.shutdown()


if __name__ == "__main__":
    main()
