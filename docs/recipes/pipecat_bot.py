"""A Pipecat bot: a session for each conversation, from its pipeline's start to its end.

    python pipecat_bot.py

It says in capitals what is typed. Yours has a transport at both ends, and `bot(runner_args)`.
"""

import asyncio
import sys

from pipecat.frames.frames import Frame, TextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from contract import RegisteredWorker, register_worker


class Shouter(FrameProcessor):
    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TextFrame):
            print(frame.text.upper(), end="", flush=True)
        await self.push_frame(frame, direction)


async def listen(pipeline: PipelineWorker) -> None:
    typed = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(typed)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async for line in typed:
        await pipeline.queue_frame(TextFrame(line.decode()))
    await pipeline.stop_when_done()


async def bot(presence: RegisteredWorker) -> None:
    pipeline = PipelineWorker(Pipeline([Shouter()]))
    # SIGTERM cancels the pipeline, as Ctrl-C does; run() then returns, and the leave follows.
    runner = WorkerRunner(handle_sigterm=True)
    await runner.add_workers(pipeline)
    # It ends with run(), whichever way that does: done, idle for too long, cancelled or failed.
    async with presence.session():
        listening = asyncio.create_task(listen(pipeline))
        await runner.run()
        listening.cancel()


async def main() -> None:
    # Once for the process, however many bots it runs; all of them share the loop, and a pipeline
    # that blocks it answers nobody: then the beats stop too.
    await bot(register_worker("shouter", version="1.0", loop=asyncio.get_running_loop()))


if __name__ == "__main__":
    asyncio.run(main())
