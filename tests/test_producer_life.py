"""How a worker comes and goes: real processes that end in every way, and what the roster shows."""

from __future__ import annotations

import asyncio
import signal

import pytest

from contract.vocabulary import TTL_SECONDS
from tests.between import Between
from tests.fleet import Fleet
from tests.hosts import Host, shown, until

pytestmark = pytest.mark.anyio

BEATS = """
worker = register_worker("reception")
until(lambda: accepted(worker))
say(agent_id=str(worker))
wait_for_word()
"""


@pytest.fixture
def backend() -> str:
    """The producer knows no store: one is enough."""
    return "selfhosted"


async def test_a_normal_exit_is_a_leave(fleet: Fleet) -> None:
    async with Host.running(BEATS, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"agent_id": "host-1"}
        await shown(fleet, "host-1", status="idle", reason="alive")
        host.tell()

        assert (await host.ended(), await host.log()) == (0, [])
        await shown(fleet, "host-1", status="offline", reason="left")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_worker_is_there_until_its_ttl_is_over(fleet: Fleet, number: int) -> None:
    async with Host.running(BEATS, fleet.url, await fleet.key()) as host:
        await host.said()
        host.kill(number)

        assert (await host.ended(), await host.log()) == (-number, [])
        await shown(fleet, "host-1", status="idle", reason="alive")
        fleet.clock.move(TTL_SECONDS + 1)
        await shown(fleet, "host-1", status="offline", reason="lost")


async def test_a_host_that_exits_on_sigterm_leaves(fleet: Fleet) -> None:
    exits = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))"

    async with Host.running(exits + BEATS, fleet.url, await fleet.key()) as host:
        await host.said()
        host.kill(signal.SIGTERM)

        assert await host.ended() == 3
        await shown(fleet, "host-1", status="offline", reason="left")


async def test_an_exit_without_goodbye_is_told_by_the_ttl(fleet: Fleet) -> None:
    async with Host.running(BEATS + "os._exit(0)", fleet.url, await fleet.key()) as host:
        await host.said()
        host.tell()

        assert await host.ended() == 0
        await shown(fleet, "host-1", status="idle", reason="alive")
        fleet.clock.move(TTL_SECONDS + 1)
        await shown(fleet, "host-1", status="offline", reason="lost")


async def test_a_host_that_dies_of_an_exception_leaves_and_shows_only_its_own_trace(
    fleet: Fleet,
) -> None:
    async with Host.running(BEATS + "1 / 0", fleet.url, await fleet.key()) as host:
        await host.said()
        host.tell()

        assert await host.ended() == 1
        assert (await host.log())[-1] == "ZeroDivisionError: division by zero"
        await shown(fleet, "host-1", status="offline", reason="left")


async def test_after_leave_nothing_beats_any_more(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception", interval=1)
until(lambda: accepted(worker))
worker.leave()
with worker.session():
    worker.beat_now()
    worker.busy()
    time.sleep(1.5)
    say(is_beating=worker.state.is_beating, status=worker.state.status)
wait_for_word()
"""
    async with (
        Between.before(fleet.url) as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        assert await host.said() == {"is_beating": False, "status": "offline"}
        await shown(fleet, "host-1", status="offline", reason="left")
        host.tell()
        assert await host.ended() == 0

    assert [beat["status"] for beat in between.beats] == ["idle", "offline"]


async def test_registered_again_after_its_leave_it_is_back(fleet: Fleet) -> None:
    program = """
first = register_worker("reception")
until(lambda: accepted(first))
first.leave()
worker = register_worker("reception")
until(lambda: accepted(worker))
say(agent_id=str(worker))
wait_for_word()
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        await host.said()

        await shown(fleet, "host-1", status="idle", reason="alive")


async def test_the_same_id_registered_twice_is_one_worker_with_the_newest_word(
    fleet: Fleet,
) -> None:
    program = """
first = register_worker("reception", version="1")
until(lambda: accepted(first))
with first.session():
    second = register_worker("reception", version="2")
    until(lambda: accepted(second))
    say(same=first is second)
    wait_for_word()
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"same": True}

        worker = await shown(fleet, "host-1", version="2", status="busy")
        assert (worker["active_sessions"], worker["conflict"]) == (1, False)


async def test_registered_again_and_gone_at_once_it_has_left(fleet: Fleet) -> None:
    program = """
first = register_worker("reception")
until(lambda: accepted(first))
register_worker("reception", version="2").leave()
"""
    async with (
        Between.before(fleet.url) as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        assert (await host.ended(), await host.log()) == (0, [])

    await shown(fleet, "host-1", status="offline", reason="left", version="2")


@pytest.mark.parametrize("elsewhere", ["http://127.0.0.1:1", ""])
async def test_registered_elsewhere_it_says_goodbye_where_it_was(
    fleet: Fleet, elsewhere: str
) -> None:
    program = f"""
first = register_worker("reception")
until(lambda: accepted(first))
del os.environ["VOICEGW_COLLECTOR_URL"]
register_worker("reception", collector_url="{elsewhere}")
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.ended() == 0

    await shown(fleet, "host-1", status="offline", reason="left")


async def test_registered_with_another_key_it_leaves_first_and_is_back_at_once(
    fleet: Fleet,
) -> None:
    program = """
worker = register_worker("reception", interval=300)
until(lambda: accepted(worker))
register_worker("reception", interval=300, api_key=wait_for_word())
until(lambda: accepted(worker))
say(is_beating=worker.state.is_beating)
wait_for_word()
"""
    async with (
        Between.before(fleet.url) as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        host.tell(await fleet.key(scopes=["ingest"]))
        assert await host.said() == {"is_beating": True}

        assert [beat["status"] for beat in between.beats] == ["idle", "offline", "idle"]
        await shown(fleet, "host-1", status="idle", reason="alive")


async def test_a_worker_can_not_be_pickled_and_says_why(fleet: Fleet) -> None:
    program = """
import pickle
try:
    pickle.dumps(register_worker("reception"))
except TypeError as why:
    say(why=str(why))
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert "register_worker is for each process" in (await host.said())["why"]


FORKS = """
worker = register_worker("reception")
until(lambda: accepted(worker))
child = os.fork()
if child == 0:
    say(child=os.getpid(), agent_id=str(worker))
    wait_for_word()
    with worker.session():
        until(lambda: accepted(worker))
        say(agent_id=str(worker))
        wait_for_word()
    sys.exit(0)
os.waitpid(child, 0)
say(agent_id=str(worker))
wait_for_word()
"""


async def test_a_forks_child_is_silent_until_it_has_a_session_and_then_a_worker_of_its_own(
    fleet: Fleet,
) -> None:
    async with (
        Between.before(fleet.url) as between,
        Host.running(FORKS, between.url, await fleet.key()) as host,
    ):
        child = (await host.said())["child"]
        assert [worker["agent_id"] for worker in await fleet.roster()] == ["host-1"]

        host.tell()
        assert await host.said() == {"agent_id": f"host-1-{child}"}
        await shown(fleet, f"host-1-{child}", status="busy", active_sessions=1)
        await shown(fleet, "host-1", status="idle", active_sessions=0, conflict=False)

        host.tell()
        assert await host.said() == {"agent_id": "host-1"}
        await shown(fleet, f"host-1-{child}", status="offline", reason="left")
        await shown(fleet, "host-1", status="idle", reason="alive")

    assert between.connections == 2


async def test_a_forks_child_that_never_works_is_never_seen(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception")
until(lambda: accepted(worker))
with worker.session():
    if (child := os.fork()) == 0:
        pass  # it leaves the block, and the session that it inherited, and ends
    else:
        os.waitpid(child, 0)
        say(sessions=worker.state.active_sessions)
        wait_for_word()
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"sessions": 1}

        await shown(fleet, "host-1", status="busy", active_sessions=1)
        assert len(await fleet.roster()) == 1


async def test_a_forks_child_that_registers_is_a_worker_of_its_own(fleet: Fleet) -> None:
    program = """
register_worker("reception")
if (child := os.fork()) == 0:
    worker = register_worker("reception")
    until(lambda: accepted(worker))
    say(pid=os.getpid(), agent_id=str(worker))
    wait_for_word()
else:
    os.waitpid(child, 0)
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        said = await host.said()

        assert said["agent_id"] == f"host-1-{said['pid']}"
        await shown(fleet, said["agent_id"], status="idle", conflict=False)
        await shown(fleet, "host-1", status="idle", conflict=False)


async def test_a_fork_in_the_middle_of_an_answer_harms_neither_side(fleet: Fleet) -> None:
    program = """
import subprocess
worker = register_worker("reception")
wait_for_word()
if (child := os.fork()) == 0:
    sys.exit(0)
say(status=os.waitpid(child, 0)[1])
say(status=subprocess.run(["true"], preexec_fn=os.setsid).returncode)
until(lambda: accepted(worker))
"""
    async with (
        Between.before(fleet.url, mode="stall") as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        await until(between.is_asked)
        # It has begun to read: the head of the answer is there.
        await asyncio.sleep(0.2)
        host.tell()
        assert [await host.said(), await host.said()] == [{"status": 0}] * 2

        between.mode = "pass"
        assert await host.ended() == 0
    await shown(fleet, "host-1", status="offline", reason="left")


async def test_a_fork_during_its_parents_leave_has_left_and_does_not_wait_for_it(
    fleet: Fleet,
) -> None:
    program = """
from contract.producer import pulse
pulse.LEAVE_SECONDS = pulse.GRACE_SECONDS = pulse.ATTEMPT_SECONDS = 600
worker = register_worker("reception")
wait_for_word()
threading.Thread(target=worker.leave, daemon=True).start()
until(lambda: worker.state.status == "offline")
if os.fork() == 0:
    worker.leave()
    with worker.session():
        say(status=worker.state.status, is_beating=worker.state.is_beating)
    again = register_worker("reception")
    say(own=str(again) == f"host-1-{os.getpid()}")
    os._exit(0)
wait_for_word()
"""
    async with (
        Between.before(fleet.url, mode="silence") as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        await until(between.is_asked)
        host.tell()

        assert await host.said() == {"status": "offline", "is_beating": False}
        assert await host.said() == {"own": True}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_children_of_multiprocessing_have_names_of_their_own_and_leave(
    fleet: Fleet, method: str
) -> None:
    # A file, because spawn runs its parent's main module again.
    program = f"""
import multiprocessing
from tests.hosted import work

register_worker("reception")
child = multiprocessing.get_context("{method}").Process(target=work)
child.start()
child.join()
say(pid=child.pid, code=child.exitcode)
wait_for_word()
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        working = await host.said()
        await shown(fleet, working["agent_id"], status="busy", active_sessions=1)
        host.tell()
        ended = await host.said()

        assert working["agent_id"] == f"host-1-{ended['pid']}"
        assert ended["code"] == 0
        await shown(fleet, working["agent_id"], status="offline", reason="left")
        await shown(fleet, "host-1", status="idle", conflict=False)


async def test_it_puts_no_signal_handlers_into_the_host(fleet: Fleet) -> None:
    program = """
numbers = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
before = [signal.getsignal(number) for number in numbers]
worker = register_worker("reception")
until(lambda: accepted(worker))
say(same=before == [signal.getsignal(number) for number in numbers])
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"same": True}
