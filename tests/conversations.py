"""Conversations with a collector, drawn: heads, bodies, framings, and whose key it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from contract.vocabulary import MAX_BODY_BYTES
from contract.vocabulary import MAX_HEADERS as MANY

KeyState = Literal[
    "known",
    "cold",
    "unknown",
    "absent",
    "malformed",
    "revoked",
    "expired",
    "ending",
    "read",
    "cookie",
]
QuotaState = Literal["none", "beats", "workers"]
# More than one stands for a kind that is worth more tries than the others.
KNOWN: KeyState = "known"
KEYS: list[KeyState] = [KNOWN] * 10 + list(get_args(KeyState))
QUOTAS: list[QuotaState] = ["none", "beats", "workers"]
PATH = "/v1/agents/heartbeat"
PATHS = [PATH] * 12 + [
    f"{PATH}?x=1",
    f"{PATH}/",
    "/v1/agents/heartbeat%20",
    f"http://collector{PATH}",
]
METHODS = ["POST"] * 12 + ["GET", "PUT", "post"]
IDS = ["mine-1", "x" * 128, "x" * 129, "two words", "", "vk_" + "A" * 32, "caf\xe9"]
OTHERS = [
    ("User-Agent", "a worker"),
    ("Content-Type", "text/plain"),
    ("Accept", "*/*"),
    ("Connection", "keep-alive"),
    ("Connection", "close"),
    ("Connection", "Upgrade"),
    ("Upgrade", "h2c"),
    ("Expect", "100-continue"),
    ("Expect", "nothing"),
    ("X-Empty", ""),
    ("X-Padding", "x" * 9000),
    ("X-Padding", "x" * 40_000),
    ("Authorization", "Bearer vk_" + "B" * 32),
    ("Authorization", "Basic abc"),
    ("Cookie", "presence_session=none"),
    ("bad name", "x"),
]
# How the head says where the body ends.
Length = Literal[
    "right",
    "short",
    "long",
    "never",
    "twice",
    "two",
    "none",
    "zero",
    "signed",
    "words",
    "chunked",
    "both",
]
RIGHT: Length = "right"
LENGTHS: list[Length] = [RIGHT] * 16 + list(get_args(Length))
CHUNKED = ("chunked", "both")
REST = {"agent_name": "reception", "status": "idle"}
NOT_JSON = [b"{", b"[]", b"null", b" ", b'{"agent_id": NaN}', b"\xff", b'{"a": "\\ud800"}']
FAULTS: list[dict[str, Any]] = [
    {"status": "purple"},
    {"agent_id": ""},
    {"agent_id": None},
    {"agent_name": "a\nb"},
    {"version": "x" * 257},
    {"active_sessions": -1},
    {"cpu_pct": "much"},
]
# Between two segments. The others' seconds (R35) are whole ones.
PAUSES = [0.0, 0.0, 0.7, 1.3]


@dataclass(frozen=True, slots=True)
class Request:
    """One request, without its key."""

    method: str
    path: str
    version: str
    # In their order; None is where the caller's own Authorization or cookie stands.
    headers: tuple[tuple[str, str] | None, ...]
    content: bytes

    def wire(self, credentials: tuple[tuple[str, str], ...]) -> tuple[bytes, bytes]:
        """Its head and its body."""
        pairs = [
            pair for each in self.headers for pair in (credentials if each is None else (each,))
        ]
        lines = [f"{self.method} {self.path} HTTP/{self.version}"]
        lines += [f"{name}: {value}" for name, value in pairs]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n", self.content


@dataclass(frozen=True, slots=True)
class Step:
    """One segment: up to which byte of all that is sent, and what happens after it."""

    until: int
    # Whether everything that can be answered by then is waited for; else only that it is read.
    settles: bool
    pause: float


@dataclass(frozen=True, slots=True)
class Conversation:
    key: KeyState
    quota: QuotaState
    requests: tuple[Request, ...]
    steps: tuple[Step, ...]


def small() -> SearchStrategy[dict[str, Any]]:
    """A heartbeat's body that is accepted."""
    return st.fixed_dictionaries(
        {
            "agent_id": st.sampled_from(["w-1", "w-2", "w-3", "Grüße"]),
            "agent_name": st.just("reception"),
            "status": st.sampled_from(["idle", "busy", "offline"]),
        },
        optional={
            "active_sessions": st.sampled_from([0, 3, 3.0, None]),
            "tenant_id": st.sampled_from(["elsewhere", 7, None]),
            "ts": st.sampled_from([1.5, "soon", None]),
            "cpu_pct": st.sampled_from([0, 99.5]),
            "version": st.sampled_from(["1.0", "x" * 256]),
            "colour": st.just("green"),
        },
    )


def wrong() -> SearchStrategy[dict[str, Any]]:
    """One with a field at fault."""
    return st.builds(lambda good, bad: good | bad, small(), st.sampled_from(FAULTS))


@st.composite
def contents(draw: DrawFn) -> bytes:
    kind = draw(st.sampled_from(["good"] * 8 + ["wrong", "not JSON", "long", "limit", "none"]))
    match kind:
        case "good":
            return encoded(draw(small()))
        case "wrong":
            return encoded(draw(wrong()))
        case "not JSON":
            return draw(st.sampled_from(NOT_JSON))
        case "long":
            # All of it JSON: nothing but its length is wrong.
            return padded(draw(small()), draw(st.sampled_from([1, 2, 500, 20_000, 83_616])))
        case "limit":
            return padded(draw(small()), draw(st.sampled_from([0, -1])))
    return b""


def encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()


def padded(body: dict[str, Any], past: int) -> bytes:
    """The body with so many bytes past the limit."""
    return encoded(body).ljust(MAX_BODY_BYTES + past)


def plain() -> SearchStrategy[Request]:
    """One as workers send them; only its body is drawn."""
    return st.builds(_plain, contents())


def _plain(content: bytes) -> Request:
    headers = (("Host", "collector"), None, ("Content-Length", str(len(content))))
    return Request("POST", PATH, "1.1", headers, content)


def oddities() -> list[Request]:
    """A good one with a single thing about its head: nothing else can be why it is refused."""
    content = encoded({"agent_id": "w-1", "agent_name": "reception", "status": "busy"})
    sent = _plain(content)
    kept_alive = (*sent.headers, ("Connection", "keep-alive"))
    more = [[other] for other in OTHERS] + [[("X-Request-ID", value)] for value in IDS]
    # Three are there already.
    more += [[(f"X-{n}", "x") for n in range(count - 3)] for count in (MANY, MANY + 1)]
    framed = [(kind, lengths(kind, len(content), 3)) for kind in get_args(Length)]
    return [
        *(replace(sent, headers=(*sent.headers, *each)) for each in more),
        *(replace(sent, headers=(*each, *sent.headers)) for each in more),
        *(replace(sent, method=method) for method in dict.fromkeys(METHODS)),
        *(replace(sent, path=path) for path in dict.fromkeys(PATHS)),
        replace(sent, version="1.0"),
        replace(sent, version="1.0", headers=kept_alive),
        *(
            replace(
                sent,
                headers=(*sent.headers[:2], *told),
                content=chunked(content, 7) if kind in CHUNKED else content,
            )
            for kind, told in framed
        ),
    ]


def exemplary() -> list[Conversation]:
    """Each single thing that may be about a head, a body or a key, in the two plainest framings."""
    good = _plain(encoded({"agent_id": "w-1", "agent_name": "reception", "status": "idle"}))
    bodies = [
        _plain(each)
        for each in (
            *NOT_JSON,
            b"",
            *(encoded({"agent_id": "w-1", **REST, **each}) for each in FAULTS),
        )
    ]
    long = [_plain(padded({"agent_id": "w-1", **REST}, past)) for past in (0, 1, 83_616)]
    others = [_plain(encoded({"agent_id": "w-2", **REST}))]
    talks: list[tuple[KeyState, QuotaState, Request]] = [
        *(("known", "none", each) for each in (*oddities(), *bodies, *long)),
        *((key, "none", good) for key in get_args(KeyState)),
        *(("known", quota, each) for quota in get_args(QuotaState) for each in (good, *others)),
    ]
    plainly = [
        Conversation(key, quota, sent, steps)
        for key, quota, each in talks
        for sent in [(good, each, good)]
        for steps in _plainly(sent, key)
    ]
    # Time passes between a head and its body, with which the next beat comes.
    head_end, *_, end = _ends((good, good), "known")[1:]
    late = (Step(head_end, settles=True, pause=1.3), Step(end, settles=True, pause=0.0))
    keys: tuple[KeyState, ...] = ("known", "ending")
    return [*plainly, *(Conversation(key, "none", (good, good), late) for key in keys)]


def _plainly(sent: tuple[Request, ...], key: KeyState) -> Iterator[tuple[Step, ...]]:
    """A segment for each request; and one for each head and each body."""
    ends = _ends(sent, key)
    for places in (ends[2::2], ends[1:]):
        yield tuple(Step(place, settles=True, pause=0.0) for place in sorted(set(places)))


def _ends(sent: tuple[Request, ...], key: KeyState) -> list[int]:
    """Where heads and bodies end, in turn, after where the first head begins."""
    parts = [part for each in sent for part in each.wire(STAND_IN[key])]
    return [0, *accumulate(map(len, parts))]


@st.composite
def odd(draw: DrawFn) -> Request:
    """One with anything about its head."""
    content = draw(contents())
    length = draw(st.sampled_from(LENGTHS))
    headers: list[tuple[str, str] | None] = [("Host", "collector"), None]
    headers += lengths(length, len(content), draw(st.integers(1, 6)))
    headers += draw(st.lists(st.sampled_from(OTHERS), max_size=2))
    own = draw(st.lists(st.sampled_from(IDS), max_size=2))
    headers += [("X-Request-ID", value) for value in own]
    if draw(st.booleans()):
        headers = draw(st.permutations(headers))
    changes: list[Callable[[str], str]] = [str, str.lower, str.upper]
    change = draw(st.sampled_from(changes))
    return Request(
        draw(st.sampled_from(METHODS)),
        draw(st.sampled_from(PATHS)),
        draw(st.sampled_from(["1.1"] * 8 + ["1.0"])),
        tuple(each and (change(each[0]), each[1]) for each in headers),
        chunked(content, draw(st.integers(1, 300))) if length in CHUNKED else content,
    )


def lengths(kind: Length, length: int, off: int) -> list[tuple[str, str]]:
    told = [("Content-Length", str(length))]
    match kind:
        case "right":
            return told
        case "short":
            return [("Content-Length", str(max(0, length - off)))]
        case "long":
            return [("Content-Length", str(length + off))]
        case "never":
            return [("Content-Length", str(length + 5000))]
        case "twice":
            return told * 2
        case "two":
            return [*told, ("Content-Length", str(length + off))]
        case "none":
            return []
        case "zero":
            return [("Content-Length", f"00{length}")]
        case "signed":
            return [("Content-Length", f"+{length}")]
        case "words":
            return [("Content-Length", "many")]
        case "chunked":
            return [("Transfer-Encoding", "chunked")]
        case "both":
            return [*told, ("Transfer-Encoding", "chunked")]


def chunked(content: bytes, size: int) -> bytes:
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


NEARLY_PLAIN = st.sampled_from(oddities())


@st.composite
def conversations(draw: DrawFn) -> Conversation:
    """Requests on one connection, and where their bytes are cut.

    All credentials of a conversation are of one length, so places are the same for both collectors.
    """
    key = draw(st.sampled_from(KEYS))
    kinds = draw(
        st.sampled_from([plain(), NEARLY_PLAIN, odd(), st.one_of(plain(), NEARLY_PLAIN, odd())])
    )
    sent = tuple(draw(st.lists(kinds, min_size=1, max_size=5)))
    places = draw(cuts(_ends(sent, key)))
    steps = tuple(
        Step(place, draw(st.booleans()), draw(st.sampled_from(PAUSES))) for place in places
    )
    return Conversation(key, draw(st.sampled_from(QUOTAS)), sent, steps)


@st.composite
def cuts(draw: DrawFn, ends: list[int]) -> list[int]:
    """Where segments end; `ends` are those of heads and bodies, in turn."""
    whole = ends[-1]
    match draw(st.sampled_from(["one", "requests", "heads", "heads", "anywhere", "bytes"])):
        case "one":
            places = []
        case "requests":
            places = ends[2::2]
        case "heads":
            places = ends[1:]
        case "anywhere":
            places = draw(st.lists(st.integers(1, whole), max_size=4))
        case _:
            # Byte by byte, all of a short one, or around an end of a head or a body.
            middle = draw(st.sampled_from(ends))
            reach = draw(st.sampled_from([8, 40, 200]))
            places = list(range(middle - reach, middle + reach))
    return sorted({place for place in places if 0 < place < whole} | {whole})


# A key is 35 characters long, a session's token 43.
_BEARER = (("Authorization", "Bearer " + "x" * 35),)
STAND_IN: dict[KeyState, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(get_args(KeyState), _BEARER),
    "absent": (),
    "malformed": (("Authorization", "Bearer none"),),
    "cookie": (("Cookie", "presence_session=" + "x" * 43),),
}


def segments(whole: bytes, steps: tuple[Step, ...]) -> list[tuple[bytes, Step]]:
    places = [0, *(step.until for step in steps)]
    return [
        (whole[start:end], step) for (start, end), step in zip(pairwise(places), steps, strict=True)
    ]
