"""`GET /asyncapi.json`: the events of the feed, from the same models."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from collector import __version__
from collector.api.openapi import schemas_of
from collector.api.operations import EVENT_STREAM, FRAMES, JSON, OPERATIONS, Parameter, Schema
from contract.vocabulary import SESSION_COOKIE

FEED: Final = ("GET", "/events")


async def asyncapi(_request: Request) -> Response:
    return Response(to_json(document()), media_type=JSON)


@cache
def document() -> dict[str, Any]:
    """AsyncAPI 3.0 of `/events`: one message a type of event; the caller leaves it as it is."""
    events = _events()
    feed = OPERATIONS[FEED]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Worker presence: the feed",
            "version": __version__,
            "description": "Server-sent events; `/openapi.json` describes the rest.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": JSON,
        "channels": {
            "events": {
                "address": FEED[1],
                "description": f"{feed.summary} The answer is `{EVENT_STREAM}`.",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in events},
            }
        },
        "operations": {
            "follow": {
                "action": "send",
                "summary": "The collector tells a follower.",
                "channel": {"$ref": "#/channels/events"},
                "messages": [{"$ref": f"#/channels/events/messages/{name}"} for name in events],
                "security": [
                    {"$ref": f"#/components/securitySchemes/{way}"} for way in feed.opened_by
                ],
                "bindings": {
                    "http": {
                        "method": FEED[0],
                        "query": _query(feed.parameters),
                        "bindingVersion": "0.3.0",
                    }
                },
            }
        },
        "components": {
            "messages": {name: _message(name, model) for name, model in events.items()},
            "schemas": schemas_of((model, "serialization") for model in FRAMES),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "session": {"type": "httpApiKey", "in": "cookie", "name": SESSION_COOKIE},
            },
        },
    }


def _events() -> dict[str, type]:
    """Each event's name, which is also its data's `type`, and the model of its data."""
    found: dict[str, type] = {}
    for model in FRAMES:
        kind = model.model_json_schema()["properties"]["type"]
        names = kind["enum"] if "enum" in kind else [kind["const"]]
        found |= dict.fromkeys(names, model)
    return found


def _message(name: str, model: type) -> dict[str, Any]:
    """The data is the model's, and of this type."""
    only_this: Schema = {"properties": {"type": {"const": name}}}
    whole: Schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {
        "name": name,
        "summary": (model.__doc__ or "").strip(),
        "contentType": JSON,
        "payload": {"allOf": [whole, only_this]},
    }


def _query(parameters: tuple[Parameter, ...]) -> Schema:
    return {
        "type": "object",
        "properties": {
            each.name: {**each.schema, "description": each.description}
            for each in parameters
            if each.place == "query"
        },
    }
