"""What is read of a heartbeat's head, and what is left to the parser of all requests."""

from __future__ import annotations

import pytest

from collector import keys
from collector.api.heads import Head, Heads

KEY = "vk_" + "A" * 32
BEAT = {
    "host": "collector",
    "authorization": f"Bearer {KEY}",
    "content-type": "application/json",
    "content-length": "7",
}


def head(
    first: str = "POST /v1/agents/heartbeat HTTP/1.1", *extra: str, **instead: str | None
) -> bytes:
    fields = BEAT | {name.replace("_", "-"): value for name, value in instead.items()}
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\r\n".join([first, *lines, *extra]).encode() + b"\r\n\r\n"


def remembered(heads: Heads, text: bytes) -> Head:
    found = heads.read(text)
    assert found is not None
    heads.remember(found)
    return found


def test_a_head_says_which_key_and_how_long_a_body() -> None:
    found = Heads().read(head())

    assert found is not None
    assert (found.key, found.length, found.identity) == (keys.digest(KEY), 7, None)


def test_a_head_that_is_known_says_the_same() -> None:
    heads = Heads()
    first = remembered(heads, head())

    assert heads.read(head()) is first


def test_a_head_is_known_only_when_its_beat_was_let_in() -> None:
    heads = Heads()

    assert heads.read(head()) is not heads.read(head())
    assert not heads._known


def test_a_head_with_an_id_of_its_own_is_read_anew() -> None:
    heads = Heads()
    told = [remembered(heads, head(x_request_id=name)).identity for name in ("one", "two")]

    assert told == [b"one", b"two"]
    assert not heads._known


@pytest.mark.parametrize(
    "text",
    [
        head("GET /v1/agents/heartbeat HTTP/1.1"),
        head("POST /v1/agents/heartbeat HTTP/1.0"),
        head("POST /v1/agents/heartbeat?x=1 HTTP/1.1"),
        head("POST /v1/agents HTTP/1.1"),
        head(connection="close"),
        head(expect="100-continue"),
        head(content_length=None, transfer_encoding="chunked"),
        head(transfer_encoding="chunked"),
        head(connection="upgrade", upgrade="websocket"),
        head(connection="upgrade", upgrade="h2c"),
        head("POST /v1/agents/heartbeat HTTP/1.1", "Content-Length: 7"),
        head("POST /v1/agents/heartbeat HTTP/1.1", "Content-Length: 8"),
        head(content_length=None),
        head(content_length="0"),
        head(content_length="-1"),
        head(content_length="seven"),
        head(authorization=None),
        head(authorization="Basic abc"),
        head() + b"{",
        head()[:-2],
        head().replace(b"\r\n", b"\n"),
        head().replace(b": ", b" : "),
        b"POS",
        b"",
    ],
    ids=lambda text: repr(text[:90]),
)
def test_what_is_not_plainly_one_beat_is_left_to_the_parser_of_all(text: bytes) -> None:
    assert Heads().read(text) is None


def test_only_so_many_heads_are_known_and_none_by_its_key() -> None:
    heads = Heads(most=3)
    for length in range(1, 9):
        remembered(heads, head(content_length=str(length)))

    assert [known.length for known in heads._known.values()] == [6, 7, 8]
    assert KEY.encode() not in b"".join(heads._known)
