"""Heartbeats: how many a second, what each costs, and how long one takes.

The collector as users run it, with keys, log and metrics, over 10,000 workers of 50 tenants and 64
connections. It is held against what the same server does with no work at all, against one upsert a
request, and against the open-source peer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import product

from benchmarks import contenders, peers, wrk
from benchmarks.contenders import Contender, Window
from benchmarks.figures import Figure, at_least, at_most, ratios
from benchmarks.fleet import muster
from benchmarks.paced import Paced, paced
from benchmarks.places import KINDS, STORES, Kind
from benchmarks.suite import Bench
from benchmarks.turns import Turn, take_turns
from conformance.target import Unreachable

ROUTE, ENDPOINT, RAW = "a no-op Starlette route", "a no-op ASGI endpoint", "a no-op raw ASGI app"
NO_OPS = {
    ROUTE: contenders.NO_OP,
    ENDPOINT: contenders.NO_OP_ENDPOINT,
    RAW: contenders.NO_OP_RAW,
}
ONE_BY_ONE, PREPARED = "one upsert a request", "the same, prepared"
# On SQLite the plain way is the prepared one.
WAYS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "selfhosted": {ONE_BY_ONE: contenders.ONE_BY_ONE},
    "cloud": {ONE_BY_ONE: contenders.ONE_BY_ONE, PREPARED: contenders.PREPARED},
}
OF_ROUTE: dict[Kind, float] = {"selfhosted": 1.1, "cloud": 1.2}
OF_RAW: dict[Kind, float] = {"selfhosted": 0.5, "cloud": 0.6}
# Of what was taken at most, a moment before.
PACE = 0.7
TIMES_THE_PEER = {10: 30, 1000: 250}
PEER_REPETITIONS = 3
CONNECTIONS = (peers.CONNECTIONS, wrk.CONNECTIONS)

Windows = Mapping[str, Sequence[Window]]


async def measure(bench: Bench) -> Sequence[Figure]:
    async with AsyncExitStack() as stack:
        running = await _start(bench, stack)
        for each in () if bench.quick else running.values():
            await each.window(bench.seconds)
        windows = await take_turns(
            bench, {name: partial(each.window, bench.seconds) for name, each in running.items()}
        )
        figures = [figure for kind in KINDS for figure in _of_store(kind, windows)]
        # Apart: nobody's most is measured long after another's.
        delays = await take_turns(
            bench,
            {name: partial(_delay, bench, running[name]) for name in (*STORES.values(), ROUTE)},
        )
        figures += [figure for name, found in delays.items() for figure in _delays(name, found)]
        return figures + ([] if bench.quick else await _beside_the_peer(bench, running))


async def _start(bench: Bench, stack: AsyncExitStack) -> dict[str, Contender]:
    running = {
        name: await stack.enter_async_context(contenders.no_op(bench.where, command))
        for name, command in NO_OPS.items()
    }
    for kind, store in STORES.items():
        ours = contenders.collector(bench.where, kind)
        running[store] = await stack.enter_async_context(ours)
        for way, command in WAYS[kind].items():
            other = contenders.collector(bench.where, kind, command)
            running[f"{store}, {way}"] = await stack.enter_async_context(other)
    return running


async def _delay(bench: Bench, contender: Contender) -> Paced:
    """How long a beat takes at a good part of what it takes at most, a moment before."""
    window = await contender.window(bench.seconds)
    return await _at_pace(contender, window.rate * PACE, 2 * bench.seconds)


async def _at_pace(contender: Contender, rate: float, seconds: int) -> Paced:
    if contender.store is not None:
        await muster(contender.store, contender.fleet)
    server = contender.process
    return await paced(server.host, server.port, contender.file, rate, seconds)


def _of_store(kind: Kind, windows: Windows) -> list[Figure]:
    store = STORES[kind]
    rates = {name: [each.rate for each in found] for name, found in windows.items()}
    goals = {ROUTE: at_least(OF_ROUTE[kind]), RAW: at_least(OF_RAW[kind])}
    return [
        *(
            Figure(f"{store}: of {other}", ratios(rates[store], rates[other]), goals.get(other))
            for other in NO_OPS
        ),
        *(
            Figure(f"{store}: times {way}", ratios(rates[store], rates[f"{store}, {way}"]))
            for way in WAYS[kind]
        ),
        Figure(f"{store}: beats a second", rates[store]),
        Figure(
            f"{store}: processor time of the answering process a beat, of a no-op route's",
            ratios(
                *([each.a_beat("own cpu") for each in windows[name]] for name in (store, ROUTE))
            ),
        ),
        *_costs(kind, windows[store]),
    ]


def _costs(kind: Kind, windows: Sequence[Window]) -> list[Figure]:
    store = STORES[kind]
    written = {"selfhosted": "bytes written a beat", "cloud": "bytes of WAL a beat"}[kind]
    used = {"cpu": "processor time of the collector a beat"}
    if kind == "cloud":
        used["store cpu"] = "processor time of PostgreSQL a beat"
    return [
        *(
            Figure(f"{store}: {what}", [each.a_beat(meter) * 1e6 for each in windows], unit="µs")
            for meter, what in used.items()
        ),
        Figure(f"{store}: {written}", [each.a_beat("written") for each in windows]),
    ]


def _delays(name: str, every: Sequence[Paced]) -> list[Figure]:
    """From when a beat was due. None where the schedule was never held.

    What does nothing is measured too: it shows what the machine adds.
    """
    found = [each for each in every if each.void is None]
    if not found:
        return []
    head = f"{name} at {PACE:.0%} of its most"
    steady = [each.p99 / each.median for each in found]
    return [
        Figure(f"{head}: p99 of p50", steady, None if name == ROUTE else at_most(4)),
        Figure(f"{head}: p50", [each.median * 1000 for each in found], unit="ms"),
        Figure(f"{head}: p99", [each.p99 * 1000 for each in found], unit="ms"),
        Figure(f"{head}: p99.9", [each.p999 * 1000 for each in found], unit="ms"),
    ]


async def _beside_the_peer(bench: Bench, running: Mapping[str, Contender]) -> list[Figure]:
    """Ours with 10,000 workers, the peer with few, and over as few connections as it bears."""
    try:
        async with AsyncExitStack() as stack:
            turns: dict[str, Turn[wrk.Window]] = {
                _peer(size): (await stack.enter_async_context(peers.peer(bench.where, size))).window
                for size in TIMES_THE_PEER
            }
            for store, connections in product(STORES.values(), CONNECTIONS):
                turn = partial(running[store].window, bench.seconds, connections=connections)
                turns[_over(store, connections)] = turn
            windows = await take_turns(bench, turns, min(PEER_REPETITIONS, bench.repetitions))
    except Unreachable as error:
        bench.say(f"without the peer: {error}")
        return []
    return [
        _times_the_peer(windows, store, size, connections)
        for store in STORES.values()
        for size, connections in product(TIMES_THE_PEER, CONNECTIONS)
    ]


def _times_the_peer(
    windows: Mapping[str, Sequence[wrk.Window]], store: str, size: int, connections: int
) -> Figure:
    """At equal concurrency it has a goal; ours over more connections is only reported."""
    ours, theirs = _over(store, connections), _peer(size)
    rates = [[each.rate for each in windows[name]] for name in (ours, theirs)]
    goal = at_least(TIMES_THE_PEER[size]) if connections == peers.CONNECTIONS else None
    return Figure(f"{ours}: times {theirs}", ratios(*rates), goal)


def _peer(size: int) -> str:
    return f"the peer with {size:,} workers over {peers.CONNECTIONS}"


def _over(store: str, connections: int) -> str:
    return f"{store} over {connections} connections"
