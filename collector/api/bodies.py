"""Bytes from the wire → a checked model, or an error that names the field."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from collector.errors import InvalidField, MalformedJSON, TooLarge
from contract.vocabulary import MAX_BODY_BYTES

Model = TypeVar("Model", bound=BaseModel)

# A body over the limit is read on and thrown away up to here, so that its sender gets to read the
# answer; a longer one is cut off.
DISCARDED_BYTES = 8 * 1024 * 1024
MAX_ERRORS = 20

_WORDS = {
    "string_pattern_mismatch": "must not contain control characters",
    "string_unicode": "must be valid Unicode, without lone surrogates",
    "missing": "is required",
}


async def read_body(receive: Receive) -> bytes:
    """The whole body; of one over the limit only its beginning, which `parse` refuses."""
    body, more = await _part(receive)
    while more and len(body) <= MAX_BODY_BYTES:
        part, more = await _part(receive)
        body += part
    discarded = len(body)
    while more and discarded < DISCARDED_BYTES:
        part, more = await _part(receive)
        discarded += len(part)
    return body


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """The next part of the body, and whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        # What came until then is no body: it may read like one that its sender never finished.
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


def parse(model: type[Model], body: bytes) -> Model:
    """One pass from bytes; the slower second reading is only for what the first refused.

    The limit of a body stands here: whichever way one came, none over it is ever read.
    """
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge(f"The body is over {MAX_BODY_BYTES} bytes.")
    try:
        if b"NaN" in body or b"Infinity" in body:
            return model.model_validate(_strict_json(body))
        return model.model_validate_json(body)
    except ValidationError as refusal:
        if refusal.errors(include_input=False)[0]["type"] == "json_invalid":
            return _parse_slowly(model, body)
        raise _invalid(refusal) from None


def _parse_slowly(model: type[Model], body: bytes) -> Model:
    """JSON may escape a lone surrogate: that is a fault of one field, not of the JSON."""
    try:
        return model.model_validate(_strict_json(body))
    except ValidationError as refusal:
        raise _invalid(refusal) from None


def _strict_json(body: bytes) -> Any:
    if not body.strip():
        raise MalformedJSON("The body is empty.")
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except json.JSONDecodeError as error:
        reason = str(error)
    except RecursionError:
        reason = "it is nested too deeply"
    except NotANumber as error:
        reason = str(error)
    except ValueError:
        reason = "a number has too many digits"
    raise MalformedJSON(f"The body is not JSON: {reason}")


class NotANumber(ValueError):
    """Python reads NaN and Infinity as numbers; JSON has neither."""


def _no_constant(name: str) -> None:
    raise NotANumber(f"{name} is not a number")


def _said(kind: str, message: str) -> str:
    return _WORDS.get(kind, message.removeprefix("Value error, "))


def _invalid(refusal: ValidationError) -> InvalidField:
    # The input itself is never echoed: it may be long, hostile or a key.
    errors = [
        (".".join(map(str, error["loc"])) or "body", _said(error["type"], error["msg"]))
        for error in refusal.errors(include_input=False, include_url=False)[:MAX_ERRORS]
    ]
    return InvalidField(
        "; ".join(f"{field}: {message}" for field, message in errors), errors=errors
    )
