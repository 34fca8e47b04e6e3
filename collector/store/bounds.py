"""How long a collector's store may take; the command line waits for longer.

A batch is tried twice within `intake.COMMIT_SECONDS`: two waits for a lock fit into them, and an
attempt that hangs leaves time for a part of another one. The process that writes beats loads this,
and so it needs nothing but the standard library.
"""

from __future__ import annotations

# One use of the writer, from its turn to its answer.
ATTEMPT_SECONDS = 4
# Other writers may hold a lock for this long.
LOCK_SECONDS = 2.5
# Connections, threads and the turn get this long to end when the store is closed.
CLOSE_SECONDS = 1
