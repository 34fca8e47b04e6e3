"""The producer of the voicegateway wheel, as its users run it, until standard input closes.

Run by the Python of an environment that has the wheel. The one argument is a JSON object, what
`register_worker` is called with; where to beat, with which key and under which id, the producer
reads from its own VOICEGW_… variables.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from voicegateway import register_worker  # type: ignore[import-not-found]
from voicegateway.fleet import worker  # type: ignore[import-not-found]


async def produce(description: dict[str, Any]) -> None:
    # It beats from a task of the running loop: called without one, it would stay silent.
    register_worker(**description)
    await asyncio.to_thread(sys.stdin.buffer.read)
    await worker.aclose()


if __name__ == "__main__":
    asyncio.run(produce(json.loads(sys.argv[1])))
