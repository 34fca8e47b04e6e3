"""What a worker's host sees of a bad collector and a bad network: nothing but a line in its log."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest
import trustme

from contract.vocabulary import TTL_SECONDS
from tests.between import Between
from tests.fleet import Fleet
from tests.hosts import Host, shown, until

pytestmark = pytest.mark.anyio

# It works through a fault, says what it saw of it, and works on until it is told that it is over.
WORKS = """
def work():
    with worker.session():
        return worker.state

worker = register_worker("reception", interval=1)
until(lambda: work().consecutive_failures >= 1)
say(error=worker.state.last_error)
until(lambda: accepted(worker))
say(failures=len(worker.state.failures), consecutive=worker.state.consecutive_failures)
wait_for_word()
"""
# The same, but it was accepted once before the fault.
WORKS_ON = """
worker = register_worker("reception", interval=1)
until(lambda: accepted(worker))
say(accepted=True)
until(lambda: worker.state.consecutive_failures >= 1)
say(error=worker.state.last_error)
until(lambda: worker.state.consecutive_failures == 0)
say(failures=len(worker.state.failures))
wait_for_word()
"""


@pytest.fixture
def backend() -> str:
    """The producer knows no store: one is enough."""
    return "selfhosted"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trusted(authority: trustme.CA) -> Iterator[str]:
    with authority.cert_pem.tempfile() as path:
        yield path


async def test_a_collector_that_is_down_at_the_start(fleet: Fleet) -> None:
    async with Between.before(fleet.url) as between:
        await between.vanish()
        async with Host.running(WORKS, between.url, await fleet.key()) as host:
            assert "can't be reached: Connection refused" in (await host.said())["error"]
            assert await fleet.roster() == []

            await between.appear()
            assert (await host.said())["consecutive"] == 0
            await shown(fleet, "host-1", status="idle")
            host.tell()

            assert await host.ended() == 0
            failing, recovered = await host.log()

    assert failing.startswith(f"WARNING worker host-1: {between.url} can't be reached")
    assert recovered == "WARNING worker host-1: its beats are accepted again"


async def test_a_collector_that_goes_away_and_comes_back(fleet: Fleet) -> None:
    async with (
        Between.before(fleet.url) as between,
        Host.running(WORKS_ON, between.url, await fleet.key()) as host,
    ):
        await host.said()
        await between.vanish()
        await host.said()
        fleet.clock.move(TTL_SECONDS + 1)
        await shown(fleet, "host-1", status="offline", reason="lost")

        await between.appear()
        await host.said()
        await shown(fleet, "host-1", status="idle", reason="alive")
        host.tell()

        assert (await host.ended(), len(await host.log())) == (0, 2)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (500, "answers 500"),
        (401, "its key is refused (401): set VOICEGW_API_KEY or api_key"),
        (403, "its key may not beat (403): it needs the scope ingest"),
        (404, "is not there (404): VOICEGW_COLLECTOR_URL is wrong"),
        (422, "its beat is refused (422): mend what register_worker was called with"),
        (429, "answers 429"),
        (503, "answers 503"),
    ],
)
async def test_a_collector_that_refuses(fleet: Fleet, status: int, told: str) -> None:
    headers = {"Retry-After": "1"} if status == 429 else {}
    answer = {"mode": "answer", "status": status, "headers": headers}
    async with (
        Between.before(fleet.url, **answer) as between,
        Host.running(WORKS, between.url, await fleet.key()) as host,
    ):
        assert told in (await host.said())["error"]
        assert await fleet.roster() == []

        between.mode = "pass"
        await host.said()
        await shown(fleet, "host-1", status="idle")
        host.tell()

        assert await host.ended() == 0
        failing, recovered = await host.log()

    assert told in failing
    assert recovered == "WARNING worker host-1: its beats are accepted again"


async def test_the_collectors_own_word_is_passed_on_in_one_line(fleet: Fleet) -> None:
    detail = "agent_name:\n is \x1b[31m too long"
    answer = {"status": 422, "body": {"detail": detail}, "mode": "answer"}
    async with (
        Between.before(fleet.url, **answer) as between,
        Host.running(WORKS, between.url, await fleet.key()) as host,
    ):
        error = (await host.said())["error"]

    assert "(422 agent_name: is [31m too long)" in error


async def test_a_redirect_is_not_followed_with_the_key(fleet: Fleet) -> None:
    headers = {"Location": "https://elsewhere.example/"}
    async with (
        Between.before(fleet.url, mode="answer", status=308, headers=headers) as between,
        Host.running(WORKS, between.url, await fleet.key()) as host,
    ):
        error = (await host.said())["error"]

    assert "answers 308 and points to https://elsewhere.example/: set that" in error


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("silence", "gives no answer in time"),
        ("drip", "gives no answer in time"),
        ("cut", "can't be reached: HTTP/1.1 20"),
    ],
)
async def test_a_collector_that_does_not_finish_its_answer(
    fleet: Fleet, mode: str, told: str
) -> None:
    async with (
        Between.before(fleet.url, mode=mode) as between,
        Host.running(WORKS, between.url, await fleet.key()) as host,
    ):
        assert told in (await host.said())["error"]
        assert await fleet.roster() == []

        between.mode = "pass"
        await host.said()
        await shown(fleet, "host-1", status="idle")
        host.tell()

        assert (await host.ended(), len(await host.log())) == (0, 2)


@pytest.mark.parametrize("mode", ["silence", "drip"])
async def test_a_host_ends_although_its_beat_gets_no_answer(fleet: Fleet, mode: str) -> None:
    program = """
worker = register_worker("reception")
with worker.session():
    say(sessions=worker.state.active_sessions)
    wait_for_word()
"""
    async with (
        Between.before(fleet.url, mode=mode) as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        assert await host.said() == {"sessions": 1}
        await until(between.is_asked)
        host.tell()

        # The beat in flight was given up for the leave, which got no answer either.
        assert (await host.ended(), await host.log()) == (0, [])
        assert await fleet.roster() == []


async def test_a_kept_connection_that_the_collector_closed_costs_no_failure(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception", interval=1)
for sent in range(3):
    last = worker.state.last_accepted_at
    until(lambda: worker.state.last_accepted_at != last)
say(failures=len(worker.state.failures))
"""
    async with (
        Between.before(fleet.url, mode="hang up") as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        assert await host.said() == {"failures": 0}
        await shown(fleet, "host-1", status="offline", reason="left")

    assert between.connections >= 3


@pytest.mark.parametrize("mode", ["hang up", "drop"])
async def test_over_tls_too_a_connection_closed_while_idle_costs_nothing(
    fleet: Fleet, tls: ssl.SSLContext, trusted: str, mode: str
) -> None:
    program = """
worker = register_worker("reception", interval=1)
for sent in range(3):
    last = worker.state.last_accepted_at
    until(lambda: worker.state.last_accepted_at != last)
say(failures=len(worker.state.failures))
wait_for_word()
"""
    async with (
        Between.before(fleet.url, mode=mode, tls=tls) as between,
        Host.running(program, between.url, await fleet.key(), SSL_CERT_FILE=trusted) as host,
    ):
        assert await host.said() == {"failures": 0}
        host.tell()
        assert (await host.ended(), await host.log()) == (0, [])
        await shown(fleet, "host-1", status="offline", reason="left")

    assert between.connections >= 3


ACCEPTED = b"HTTP/1.1 202 Accepted\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        ACCEPTED + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 202 Accepted\r\nContent-Length: 2\r\n\r\n{}",
        ACCEPTED + b"\r\n{}",
        ACCEPTED + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ACCEPTED + b"Content-Length: 60000\r\n\r\n" + b"[" * 60_000,
        ACCEPTED
        + b"Content-Length: 2\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
        + b"Retry-After: Mon, 01 Jan 99999999999999999999 00:00:00 GMT\r\n\r\n{}",
    ],
    ids=["close", "HTTP/1.0", "no length", "chunked", "deep JSON", "a date past all years"],
)
async def test_an_accepted_beat_is_accepted_however_it_is_said(raw: bytes) -> None:
    program = """
worker = register_worker("reception", interval=1)
for sent in range(2):
    last = worker.state.last_accepted_at
    until(lambda: worker.state.last_accepted_at != last or worker.state.failures)
say(errors=[each.error for each in worker.state.failures])
"""
    async with (
        Between.before("http://nowhere.example", mode="raw", raw=raw) as between,
        Host.running(program, between.url, "vk_X") as host,
    ):
        assert await host.said() == {"errors": []}
        assert (await host.ended(), await host.log()) == (0, [])

    assert [beat["status"] for beat in between.beats] == ["idle", "idle", "offline"]


# What a system may refuse, and a host may do, before it registers; the name is what it is about.
POOR_HOSTS = {
    "no thread for the resolver": """
start = threading.Thread.start
def refuse(thread):
    if thread.name == "worker-presence-resolve":
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)
threading.Thread.start = refuse
""",
    "no IPv6": """
import socket
class Plain(socket.socket):
    def __init__(self, family=-1, *rest, **more):
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        super().__init__(family, *rest, **more)
socket.socket, known = Plain, socket.getaddrinfo
socket.getaddrinfo = lambda host, port, **more: [
    (socket.AF_INET6, 1, 6, "", ("::1", port, 0, 0)), *known("127.0.0.1", port, **more)
]
""",
    "a log that fails": """
class Failing(logging.Handler):
    def emit(self, record):
        raise OSError("the disk is full")
logging.getLogger().handlers = [Failing()]
""",
}


@pytest.mark.parametrize("lack", POOR_HOSTS)
async def test_it_beats_and_leaves_on_a_host_with(fleet: Fleet, lack: str) -> None:
    program = """
worker = register_worker("reception", interval=1, tenant_id="told in the log")
until(lambda: accepted(worker))
say(accepted=True)
until(lambda: worker.state.consecutive_failures >= 2)
say(failed=worker.state.is_beating)
until(lambda: worker.state.consecutive_failures == 0)
"""
    async with Between.before(fleet.url) as between:
        url = between.url.replace("127.0.0.1", "localhost")
        async with Host.running(POOR_HOSTS[lack] + program, url, await fleet.key()) as host:
            assert await host.said() == {"accepted": True}
            between.mode = "answer"
            assert await host.said() == {"failed": True}
            between.mode = "pass"

            assert await host.ended() == 0
            await shown(fleet, "host-1", status="offline", reason="left")


async def test_without_descriptors_it_says_so_once_and_starts_when_there_are_some(
    fleet: Fleet,
) -> None:
    program = """
import resource
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
worker = register_worker("reception")
for _ in range(3):
    with worker.session():
        pass
say(is_beating=worker.state.is_beating)
resource.setrlimit(resource.RLIMIT_NOFILE, before)
def works():
    with worker.session():
        return accepted(worker)
until(works)
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"is_beating": False}
        assert await host.ended() == 0
        refused, beats = await host.log()

    assert refused.startswith("WARNING worker host-1: it does not beat, and tries again: ")
    assert beats == "WARNING worker host-1: it beats"


async def test_without_a_thread_it_keeps_no_descriptors_and_tries_again(fleet: Fleet) -> None:
    program = """
start = threading.Thread.start
def refuse(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
before = os.listdir("/proc/self/fd")
worker = register_worker("reception")
say(is_same=os.listdir("/proc/self/fd") == before)
threading.Thread.start = start
def nudges():
    worker.beat_now()
    return accepted(worker)
until(nudges)
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"is_same": True}
        assert (await host.ended(), len(await host.log())) == (0, 2)


async def test_what_a_host_without_standard_streams_prints_goes_to_nobody(fleet: Fleet) -> None:
    program = """
out = os.fdopen(os.dup(1), "w")
for stream in range(3):
    os.close(stream)
worker = register_worker("reception")
until(lambda: accepted(worker))
taken = []
for stream in range(3):
    try:
        os.fstat(stream)
        taken.append(stream)
    except OSError:
        pass
print(json.dumps({"taken": taken}), file=out, flush=True)
os._exit(0)
"""
    async with Host.running(program, fleet.url, await fleet.key()) as host:
        assert await host.said() == {"taken": []}


async def test_beats_share_one_connection(fleet: Fleet) -> None:
    program = """
worker = register_worker("reception", interval=1)
with worker.session():
    until(lambda: worker.state.last_accepted_at)
last = worker.state.last_accepted_at
until(lambda: worker.state.last_accepted_at != last)
say(agent_id=str(worker))
"""
    async with (
        Between.before(fleet.url) as between,
        Host.running(program, between.url, await fleet.key()) as host,
    ):
        await host.said()
        assert await host.ended() == 0

    assert len(between.requests) >= 3
    assert between.connections == 1


async def test_a_certificate_that_nobody_vouches_for_gets_no_key(
    fleet: Fleet, tls: ssl.SSLContext
) -> None:
    async with (
        Between.before(fleet.url, tls=tls) as between,
        Host.running(WORKS, between.url, await fleet.key()) as host,
    ):
        error = (await host.said())["error"]

        assert f"the certificate of {between.url} is not trusted" in error
        assert "SSL_CERT_FILE" in error
        assert (await fleet.roster(), between.requests) == ([], [])


async def test_a_certificate_for_another_name_gets_no_key(
    fleet: Fleet, authority: trustme.CA, trusted: str
) -> None:
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("elsewhere.example").configure_cert(other)
    async with (
        Between.before(fleet.url, tls=other) as between,
        Host.running(WORKS, between.url, await fleet.key(), SSL_CERT_FILE=trusted) as host,
    ):
        error = (await host.said())["error"]

        assert "IP address mismatch" in error
        assert (await fleet.roster(), between.requests) == ([], [])


async def test_beats_go_over_verified_tls(fleet: Fleet, tls: ssl.SSLContext, trusted: str) -> None:
    async with (
        Between.before(fleet.url, tls=tls) as between,
        Host.running(
            "worker = register_worker('reception')\nuntil(lambda: accepted(worker))",
            between.url,
            await fleet.key(),
            SSL_CERT_FILE=trusted,
        ) as host,
    ):
        assert (await host.ended(), await host.log()) == (0, [])
        await shown(fleet, "host-1", status="offline", reason="left")

    assert between.connections == 1


async def test_the_proxy_of_the_environment_is_asked(fleet: Fleet) -> None:
    program = "worker = register_worker('reception')\nuntil(lambda: accepted(worker))"
    async with Between.before(fleet.url) as proxy:
        variables = {"HTTP_PROXY": proxy.url.replace("//", "//user:p%40ss@")}
        async with Host.running(
            program, "http://collector.example:8080", await fleet.key(), **variables
        ) as host:
            assert (await host.ended(), await host.log()) == (0, [])
            await shown(fleet, "host-1", status="offline", reason="left")

    (first, _leave) = proxy.requests
    assert first.line == ("POST http://collector.example:8080/v1/agents/heartbeat HTTP/1.1")
    assert first.headers["Proxy-Authorization"] == "Basic dXNlcjpwQHNz"


async def test_tls_goes_through_the_proxy_to_the_collector_itself(
    fleet: Fleet, tls: ssl.SSLContext, trusted: str
) -> None:
    program = "worker = register_worker('reception')\nuntil(lambda: accepted(worker))"
    async with (
        Between.before(fleet.url, tls=tls) as between,
        Between.before("http://nowhere.example") as proxy,
        Host.running(
            program,
            between.url,
            await fleet.key(),
            HTTPS_PROXY=proxy.url,
            SSL_CERT_FILE=trusted,
        ) as host,
    ):
        assert (await host.ended(), await host.log()) == (0, [])
        await shown(fleet, "host-1", status="offline", reason="left")

        (connect,) = proxy.requests
        assert connect.line == f"CONNECT 127.0.0.1:{between.port} HTTP/1.1"
        assert "Authorization" not in connect.headers


async def test_no_proxy_is_asked_for_what_the_environment_excepts(fleet: Fleet) -> None:
    program = "worker = register_worker('reception')\nuntil(lambda: accepted(worker))"
    variables = {"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1"}
    async with Host.running(program, fleet.url, await fleet.key(), **variables) as host:
        assert (await host.ended(), await host.log()) == (0, [])

    await shown(fleet, "host-1", status="offline", reason="left")


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"VOICEGW_COLLECTOR_URL": ""}, "no collector is given: set VOICEGW_COLLECTOR_URL"),
        ({"VOICEGW_COLLECTOR_URL": "localhost:8080"}, "must begin with http:// or https://"),
        ({"VOICEGW_COLLECTOR_URL": "http://localhost:x"}, "Port could not be cast"),
        ({"VOICEGW_COLLECTOR_URL": "http://localhost:0"}, "the port in a URL can't be 0"),
        ({"VOICEGW_COLLECTOR_URL": "http://a..b"}, "the collector's URL names no host: 'a..b'"),
        ({"VOICEGW_API_KEY": ""}, "no key is given: set VOICEGW_API_KEY or api_key"),
        ({"VOICEGW_API_KEY": "vk_\nX"}, "has characters that no key has"),
    ],
)
async def test_a_host_that_can_not_beat_is_told_so_once_and_works_on(
    variables: dict[str, str], told: str
) -> None:
    program = """
worker = register_worker("reception")
with worker.session():
    worker.beat_now()
    say(beats=worker.state.is_beating, sessions=worker.state.active_sessions)
worker.leave()
"""
    async with Host.running(program, "http://127.0.0.1:1", "vk_X", **variables) as host:
        assert await host.said() == {"beats": False, "sessions": 1}
        assert await host.ended() == 0
        (line,) = await host.log()

    assert line.startswith("WARNING worker host-1 does not beat: ")
    assert told in line
    assert "vk_" not in line
