"""What a child of multiprocessing does in a test; spawn imports it by its name."""

from __future__ import annotations

import json
import os
import time

from contract import register_worker


def work() -> None:
    worker = register_worker("reception")
    with worker.session():
        while worker.state.last_accepted_at is None:
            time.sleep(0.005)
        os.write(1, json.dumps({"agent_id": str(worker)}).encode() + b"\n")
        # By their numbers: what multiprocessing makes of sys.stdin differs from method to method.
        os.read(0, 1_024)
