"""A batch script: one session for each job, and a leave at its end, whichever way that comes.

    python script.py FILE...

It prints the digest of each file. Put your own job in the place of `digest`.
"""

import hashlib
import signal
import sys
from pathlib import Path

from contract import register_worker


def digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def main() -> None:
    # By itself SIGTERM kills Python on the spot: nobody says goodbye, and the roster shows the
    # worker until its 45 seconds are over (`lost`). As an exit it ends like any other script: with
    # its `finally` blocks, and with the leave (`left`). SIGINT, which is Ctrl-C, does so anyway.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    worker = register_worker("digests", version="1.0")
    for name in sys.argv[1:]:
        # Busy in here, also if the job raises; idle between two jobs.
        with worker.session():
            print(digest(Path(name)), name, flush=True)
    # No leave() is needed: a normal end, sys.exit and an exception that nobody caught are leaves.


if __name__ == "__main__":
    main()
