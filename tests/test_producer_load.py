"""What a worker has in hand, how soon it is told, and when it says that it is alive."""

from __future__ import annotations

from itertools import pairwise

import pytest

from contract.vocabulary import TTL_SECONDS
from tests.between import Between
from tests.fleet import Fleet
from tests.hosts import Host, shown

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend() -> str:
    """The producer knows no store: one is enough."""
    return "selfhosted"


async def test_a_session_makes_it_busy_at_once_and_its_end_idle(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception", interval=300)
until(lambda: accepted(worker))
with worker.session(), worker.session():
    say(sessions=worker.state.active_sessions)
    wait_for_word()
say(sessions=worker.state.active_sessions)
wait_for_word()
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"sessions": 2}
        await shown(fleet, "host-1", status="busy", active_sessions=2)

        host.tell()
        assert await host.said() == {"sessions": 0}
        await shown(fleet, "host-1", status="idle", active_sessions=0)


async def test_a_host_that_does_not_count_says_busy_and_idle(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception", interval=300)
worker.busy()
wait_for_word()
worker.idle()
wait_for_word()
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        await shown(fleet, "host-1", status="busy", active_sessions=0)

        host.tell()
        await shown(fleet, "host-1", status="idle")


async def test_changes_are_told_at_most_once_a_second(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception", interval=300)
until(lambda: accepted(worker))
ends = time.monotonic() + 3
while time.monotonic() < ends:
    with worker.session():
        time.sleep(0.01)
    worker.beat_now()
say(failures=len(worker.state.failures))
"""
    async with (
        Between.before(fleet.url) as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        assert await host.said() == {"failures": 0}
        assert await host.ended() == 0

    *told, leave = between.beats
    apart = [later["ts"] - sooner["ts"] for sooner, later in pairwise(told)]
    assert leave["status"] == "offline"
    assert len(told) > 1
    # Between the beginnings of two beats lies a second; ts is read a moment after.
    assert min(apart) > 0.9


async def test_ten_thousand_sessions_of_fifty_threads_and_fifty_tasks_end_at_zero(
    fleet: Fleet,
) -> None:
    program = """
worker = register_worker("reception")
met = threading.Barrier(51)

def in_a_thread():
    for _ in range(99):
        with worker.session():
            pass
    with worker.session():
        met.wait()
        met.wait()

async def in_a_task(met, parted):
    for _ in range(99):
        async with worker.session():
            await asyncio.sleep(0)
    async with worker.session():
        met.set_result(None)
        await parted.wait()

async def tasks():
    loop, parted = asyncio.get_running_loop(), asyncio.Event()
    arrived = [loop.create_future() for _ in range(50)]
    running = [asyncio.create_task(in_a_task(each, parted)) for each in arrived]
    await asyncio.gather(*arrived)
    await asyncio.to_thread(met.wait)
    say(at_once=worker.state.active_sessions)
    await asyncio.to_thread(wait_for_word)
    parted.set()
    await asyncio.to_thread(met.wait)
    await asyncio.gather(*running)

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=in_a_thread) for _ in range(50)]
for thread in threads:
    thread.start()
asyncio.run(tasks())
for thread in threads:
    thread.join()
say(at_last=worker.state.active_sessions, status=worker.state.status)
wait_for_word()
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"at_once": 100}
        await shown(fleet, "host-1", status="busy")

        host.tell()
        assert await host.said() == {"at_last": 0, "status": "idle"}
        await shown(fleet, "host-1", status="idle", active_sessions=0)


async def test_a_session_ends_when_its_work_fails(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception")
try:
    with worker.session():
        1 / 0
except ZeroDivisionError:
    say(sessions=worker.state.active_sessions)
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"sessions": 0}


async def test_one_session_that_is_entered_twice_counts_twice(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception")
session = worker.session()
with session:
    with session:
        say(sessions=worker.state.active_sessions)
    say(sessions=worker.state.active_sessions)
say(sessions=worker.state.active_sessions)
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        said = [(await host.said())["sessions"] for _ in range(3)]

    assert said == [2, 1, 0]


async def test_a_signal_handler_may_open_sessions_at_any_moment(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception")

def handle(*_):
    with worker.session():
        worker.beat_now()
        worker.state

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(20_000):
    with worker.session():
        worker.beat_now()
signal.setitimer(signal.ITIMER_REAL, 0)
say(sessions=worker.state.active_sessions)
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"sessions": 0}


UNDER = {
    "asyncio": """
async def main():
    worker = register_worker("reception", loop=asyncio.get_running_loop())
    async with worker.session():
        while not accepted(worker):
            await asyncio.sleep(0.01)
        say(agent_id=str(worker))
        await asyncio.to_thread(wait_for_word)
asyncio.run(main())
""",
    "trio": """
import trio
async def main():
    worker = register_worker("reception", loop=trio.lowlevel.current_trio_token())
    async with worker.session():
        while not accepted(worker):
            await trio.sleep(0.01)
        say(agent_id=str(worker))
        await trio.to_thread.run_sync(wait_for_word)
trio.run(main)
""",
    "threads": """
def main():
    worker = register_worker("reception")
    with worker.session():
        until(lambda: accepted(worker))
        say(agent_id=str(worker))
        wait_for_word()
thread = threading.Thread(target=main)
thread.start()
thread.join()
""",
}


@pytest.mark.parametrize("way", UNDER)
async def test_it_works_under(fleet: Fleet, way: str) -> None:
    async with Host.running(UNDER[way], fleet.url, await fleet.key()) as host:
        await host.said()
        await shown(fleet, "host-1", status="busy", active_sessions=1)
        host.tell()

        assert (await host.ended(), await host.log()) == (0, [])
        await shown(fleet, "host-1", status="offline", reason="left")


async def test_a_worker_whose_loop_hangs_stops_beating_until_it_comes_round_again(
    fleet: Fleet,
) -> None:
    program = """
async def main():
    worker = register_worker("reception", interval=1, loop=asyncio.get_running_loop())
    while not accepted(worker):
        await asyncio.sleep(0.01)
    say(alive=True)
    wait_for_word()  # which keeps the loop
    last = worker.state.last_accepted_at
    while worker.state.last_accepted_at == last:
        await asyncio.sleep(0.01)
    say(alive=True)
asyncio.run(main())
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        await host.said()
        assert await host.logs("does not beat")
        fleet.clock.move(TTL_SECONDS + 1)
        await shown(fleet, "host-1", status="offline", reason="lost")

        host.tell()
        await host.said()
        await shown(fleet, "host-1", reason="left")
        assert await host.ended() == 0
        assert await host.log() == ["WARNING worker host-1: it is alive again, and beats"]


@pytest.mark.parametrize("no", ["False", "1 / 0", "sys.exit(1)", "cancelled()"])
async def test_a_worker_that_says_it_is_not_alive_is_told_so_by_the_ttl(
    fleet: Fleet, no: str
) -> None:
    program = f"""
sick = threading.Event()
def cancelled():
    raise asyncio.CancelledError
worker = register_worker("reception", interval=1, alive=lambda: {no} if sick.is_set() else True)
until(lambda: accepted(worker))
say(alive=True)
wait_for_word()
sick.set()
wait_for_word()
sick.clear()
wait_for_word()
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        await host.said()
        host.tell()
        line = await host.logs("does not beat")
        assert "its own probe says" in line or "its probe failed: " in line
        fleet.clock.move(TTL_SECONDS + 1)
        await shown(fleet, "host-1", status="offline", reason="lost")

        host.tell()
        await shown(fleet, "host-1", status="idle", reason="alive")
        host.tell()
        assert await host.ended() == 0
        assert await host.log() == ["WARNING worker host-1: it is alive again, and beats"]
