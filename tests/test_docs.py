"""The page for people, and the description of the events."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from html import unescape
from html.parser import HTMLParser

import pytest

from collector.api import asyncapi, docs, openapi
from collector.api.operations import FRAMES, OPERATIONS
from collector.app import ROUTES
from contract.vocabulary import Told
from tests.fleet import Fleet

SERVED = openapi.doors(ROUTES)
PAGE = docs.page(SERVED)
LOADING = {"src", "srcset", "action", "formaction", "background", "poster", "data", "style"}


class Elements(HTMLParser):
    """Every start tag, and the ids and links of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(PAGE)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def values(self, name: str) -> list[str]:
        return [value or "" for attribute, value in self.attributes if attribute == name]


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    elements = Elements()

    assert not elements.tags & {"script", "link", "img", "iframe", "object", "embed", "form"}
    assert not {name for name, _ in elements.attributes} & LOADING
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    assert not re.search(r"url\(|@import", PAGE)


def test_every_link_leads_somewhere() -> None:
    elements = Elements()
    ids = elements.values("id")

    assert len(ids) == len(set(ids))
    for link in elements.values("href"):
        served = ("GET", f"/{link}") in SERVED
        assert served or link.removeprefix("#") in ids


@pytest.mark.parametrize("door", OPERATIONS, ids=" ".join)
def test_the_page_tells_of_every_route_with_an_example(door: tuple[str, str]) -> None:
    method, path = door
    operation = openapi.document(SERVED)["paths"][path][method.lower()]

    words = shlex.split(docs.example(method, path, operation))

    assert unescape(PAGE).count(docs.example(method, path, operation)) == 1
    assert words[0] == "curl"
    is_guarded, ways = OPERATIONS[door].scope is not None, OPERATIONS[door].opened_by
    assert ("Authorization: Bearer $VOICEGW_API_KEY" in words) == (is_guarded and "key" in ways)
    assert ("$SESSION_COOKIE" in words) == (ways == ("session",))


async def test_the_policy_allows_the_pages_own_style_alone(fleet: Fleet) -> None:
    answer = await fleet.http.get("/docs")
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()

    policy = answer.headers["content-security-policy"].split("; ")

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert policy[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]


async def test_the_events_are_described_without_a_key(fleet: Fleet) -> None:
    document = (await fleet.http.get("/asyncapi.json")).json()

    assert document == asyncapi.document()
    assert document["asyncapi"].startswith("3.")
    assert document["channels"]["events"]["address"] == "/events"


def test_every_type_of_event_is_a_message_of_its_model() -> None:
    components = asyncapi.document()["components"]
    told = {"snapshot", "vitals", *Told.__args__}  # type: ignore[attr-defined]

    assert set(components["messages"]) == told
    for message in components["messages"].values():
        model = message["payload"]["allOf"][0]["$ref"].rpartition("/")[2]
        assert model in {frame.__name__ for frame in FRAMES}
        assert model in components["schemas"]
