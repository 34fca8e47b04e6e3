"""What looks like a key is told from what does not, and stays out of logs and answers."""

from __future__ import annotations

import json
import logging
import sys
from urllib.parse import quote
from uuid import uuid4

import pytest

from collector import logs
from collector.redaction import CUT, holds_key, redacted
from tests.fleet import Fleet

SECRET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
ENCODED = "".join(f"%{ord(each):02X}" for each in SECRET)
FORMS = (
    f"vk_{SECRET}",
    SECRET,
    SECRET.lower(),
    f"VK_{SECRET}",
    f"vk-{SECRET}",
    f"vk%5F{SECRET}",
    f"%2F{SECRET}",
    ENCODED,
    f"%41{SECRET[1:]}",
)
OTHERS = (
    SECRET[:-1],
    f"{SECRET}A",
    f"9{SECRET}",
    "worker-1",
    "100%",
    "d41d8cd98f00b204e9800998ecf8427e",
)


def hides(line: str) -> bool:
    return SECRET[1:].lower() not in line.lower() and ENCODED[3:] not in line


@pytest.mark.parametrize("form", FORMS)
def test_a_key_is_cut_out_whatever_its_form(form: str) -> None:
    said = redacted(f"GET /v1/agents/{form}/timeline 404")

    assert CUT in said
    assert hides(said)
    assert holds_key(f"/v1/agents/{form}")


@pytest.mark.parametrize("other", OTHERS)
def test_ids_of_other_lengths_stay_as_they_are(other: str) -> None:
    assert redacted(f"GET /v1/agents/{other} 404") == f"GET /v1/agents/{other} 404"
    assert not holds_key(f"/v1/agents/{other}")


def test_a_key_that_is_encoded_twice_or_more_is_seen() -> None:
    for encoded in (
        quote(f"vk%5F{SECRET}"),
        quote(f"%2F{SECRET}"),
        quote(quote(f"%41{SECRET[1:]}")),
    ):
        assert holds_key(encoded)
        assert hides(redacted(f"GET /{encoded} 404"))
    assert holds_key(quote(quote(quote(quote("a b")))))


def test_random_ids_of_programs_stay_as_they_are() -> None:
    ids = [uuid4().hex for _ in range(100)] + [str(uuid4()) for _ in range(100)]

    # One in some ten thousand has none of the four digits that no key has.
    assert sum(redacted(each) != each for each in ids) <= 2


@pytest.mark.parametrize("formatter", [logs.Formatter(), logs.JsonFormatter()])
@pytest.mark.parametrize("form", FORMS)
def test_no_part_of_a_log_line_has_a_key(formatter: logging.Formatter, form: str) -> None:
    try:
        raise ValueError(f"wrong:\n{form}")
    except ValueError:
        told = sys.exc_info()
    record = logging.LogRecord("x", logging.ERROR, "", 0, "it was\n%s", (form,), told)
    record.agent_id, record.peer, record.fields = form, form, [form]

    assert hides(formatter.format(record))


@pytest.mark.parametrize("form", FORMS)
async def test_what_is_asked_for_with_a_key_in_it_is_neither_logged_nor_sent_back(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    caplog.set_level(logging.DEBUG, "collector")
    caplog.handler.setFormatter(logs.JsonFormatter())
    headers = {**await fleet.headers(), "X-Request-ID": form}

    answers = [
        await fleet.http.get(f"/v1/agents/{form}", headers=headers),
        await fleet.http.get(f"/v1/agents?{form}=1", headers=headers),
        await fleet.http.post("/v1/keys", headers=headers, json={"scopes": ["read"], form: 1}),
        await fleet.http.post(
            "/v1/agents/heartbeat", headers=headers, json={"agent_id": form, "status": "purple"}
        ),
    ]

    assert [answer.status_code for answer in answers] == [404, 422, 422, 422]
    assert all(hides(answer.text + str(answer.headers)) for answer in answers)
    assert len(caplog.text.splitlines()) >= 4
    assert hides(caplog.text)


async def test_an_act_has_no_key_of_its_query(fleet: Fleet) -> None:
    query = {"project": SECRET}

    await fleet.http.delete("/v1/agents", headers=await fleet.headers(), params=query)

    acts = (await fleet.get("/v1/audit")).json()["acts"]
    assert all(hides(json.dumps(act)) for act in acts)
