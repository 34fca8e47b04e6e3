"""An asyncio service: a session for each call, and silence when its event loop hangs.

    python service.py [PORT]

A call is a connection here, and each line of it is answered in capitals.
"""

import asyncio
import signal
import sys
from contextlib import suppress

from contract import register_worker


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    # With `loop` it beats only while the loop comes round. Something in it that blocks for longer
    # than 5 seconds stops the beats, and the roster shows the worker offline, as its callers do.
    worker = register_worker("shouter", version="1.0", loop=loop)

    async def take_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A call that is left at the end is cancelled by asyncio.run; its session ends like any.
        with suppress(asyncio.CancelledError):
            async with worker.session():
                async for line in reader:
                    writer.write(line.upper())
                    await writer.drain()
        writer.close()

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = await asyncio.start_server(take_call, "127.0.0.1", port)
    print("listens on port", server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    server.close()
    # The leave follows at the exit.


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
