"""`GET /openapi.json`: the routes that are served, described by the table and the models."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from collector import __version__
from collector.api.operations import JSON, OPERATIONS, Answer, Door, Operation, Parameter, Schema
from collector.api.problems import STATUSES
from contract.problem import Problem
from contract.vocabulary import KEY_PATTERN, SESSION_COOKIE

PROBLEM: Final = "application/problem+json"
REF: Final = "#/components/schemas/{model}"
# What any route may answer, and what any route with a key may.
# The first three are said by the connection, before it is known which route is meant.
_OF_ALL: Final = ("malformed_request", "request_timeout", "head_too_large", "internal")
_OF_GUARDED: Final = ("unauthenticated", "missing_scope", "overloaded", "store_unavailable")
# And what may be answered to a cookie that is to change something.
_OF_WRITES: Final = ("foreign_origin",)
_HEADERS: Final[dict[str, Schema]] = {
    "X-Request-ID": {
        "description": "The caller's own, or a fresh one; the log has it too.",
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Seconds after which to come back.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {
        "description": "How to present a key.",
        "schema": {"type": "string", "enum": ["Bearer"]},
    },
}
_RETRIED: Final = frozenset({429, 503})


async def openapi(request: Request) -> Response:
    """The document of the app that is asked."""
    return Response(to_json(document(doors(request.app.routes))), media_type=JSON)


def doors(routes: Iterable[BaseRoute]) -> tuple[Door, ...]:
    """Method and path of every route, in order; HEAD goes with GET."""
    return tuple(
        (method, route.path_format)
        for route in routes
        if isinstance(route, Route)
        for method in sorted(route.methods or (), reverse=True)
        if method != "HEAD"
    )


@cache
def document(served: tuple[Door, ...]) -> dict[str, Any]:
    """OpenAPI 3.1 of these doors; the caller leaves it as it is."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path in served:
        paths.setdefault(path, {})[method.lower()] = _operation(method, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Worker presence",
            "version": __version__,
            "summary": "Who is alive, and what are they doing, right now.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": group} for group in _groups(served)],
        "paths": paths,
        "components": {
            "schemas": _schemas(served),
            "headers": _HEADERS,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": KEY_PATTERN,
                    "description": "A key of one tenant; it decides whose workers are meant.",
                },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": SESSION_COOKIE,
                    "description": (
                        "A browser that signed in with a key; of its own origin alone. Where the "
                        "request's Host names a port, `_` and that port follow the name."
                    ),
                },
            },
        },
    }


def schemas_of(
    models: Iterable[tuple[type[BaseModel], JsonSchemaMode]], ref: str = REF
) -> dict[str, Schema]:
    """The models' schemas and those that they use, by name."""
    _, definitions = models_json_schema(list(dict.fromkeys(models)), ref_template=ref)
    found: dict[str, Schema] = definitions["$defs"]
    return found


def refusals(method: str, operation: Operation) -> dict[int, list[str]]:
    """The codes that it may answer, by status."""
    codes = [*operation.refusals, *_OF_ALL, *(_OF_GUARDED if operation.scope else ())]
    if operation.scope and method != "GET" and "session" in operation.opened_by:
        codes += _OF_WRITES
    by_status: dict[int, list[str]] = {}
    for code in sorted(codes, key=lambda code: STATUSES[code]):
        by_status.setdefault(STATUSES[code], []).append(code)
    return by_status


def _groups(served: Iterable[Door]) -> list[str]:
    return list(dict.fromkeys(OPERATIONS[door].group for door in served))


def _schemas(served: Iterable[Door]) -> dict[str, Schema]:
    found: list[tuple[type[BaseModel], JsonSchemaMode]] = [(Problem, "serialization")]
    for operation in map(OPERATIONS.__getitem__, served):
        if operation.body is not None:
            found.append((operation.body, "validation"))
        if operation.answer.model is not None:
            found.append((operation.answer.model, "serialization"))
    return schemas_of(found)


def _operation(method: str, path: str) -> dict[str, Any]:
    operation = OPERATIONS[method, path]
    described: dict[str, Any] = {
        "operationId": _id(method, path),
        "tags": [operation.group],
        "summary": operation.summary,
        "security": _security(operation),
        "parameters": [_parameter(each) for each in operation.parameters],
        "responses": {
            str(operation.answer.status): _success(operation.answer),
            **{
                str(status): _problem(status, codes)
                for status, codes in refusals(method, operation).items()
            },
        },
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.body_is_required,
            "content": {JSON: {"schema": _ref(operation.body), "example": operation.body_example}},
        }
    return described


def _security(operation: Operation) -> list[Schema]:
    """Any one of them does."""
    if operation.scope is None:
        return []
    return [{way: [operation.scope]} for way in operation.opened_by]


def _id(method: str, path: str) -> str:
    words = path.replace("{", "").replace("}", "").replace(".", "/").replace("-", "_")
    return "_".join([method.lower(), *filter(None, words.split("/"))])


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "required": parameter.place == "path",
        "schema": parameter.schema,
    }
    return described if parameter.example is None else {**described, "example": parameter.example}


def _success(answer: Answer) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": answer.description,
        "headers": {"X-Request-ID": _header("X-Request-ID")},
    }
    if answer.media_type is not None:
        kinds = answer.media_type if isinstance(answer.media_type, tuple) else (answer.media_type,)
        described["content"] = {kind: {"schema": _body(answer)} for kind in kinds}
    return described


def _body(answer: Answer) -> Schema:
    if answer.model is not None:
        return _ref(answer.model)
    return {"type": "object" if answer.media_type == JSON else "string"}


def _problem(status: int, codes: list[str]) -> dict[str, Any]:
    names = ["X-Request-ID"]
    if status == HTTPStatus.UNAUTHORIZED:
        names.append("WWW-Authenticate")
    if status in _RETRIED and "not_ready" not in codes:
        names.append("Retry-After")
    return {
        "description": " or ".join(f"`{code}`" for code in codes),
        "headers": {name: _header(name) for name in names},
        "content": {PROBLEM: {"schema": _ref(Problem)}},
    }


def _header(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}


def _ref(model: type[BaseModel]) -> Schema:
    return {"$ref": REF.format(model=model.__name__)}
