"""`GET /docs`: the OpenAPI document as one page, which needs no script and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from http import HTTPStatus
from pathlib import Path
from string import Template
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from collector.api import openapi
from collector.api.operations import EVENT_STREAM, JSON, Door, Schema

_STYLE: Final = Path(__file__).with_name("docs.css").read_text(encoding="utf-8")
_PAGE: Final = Template(Path(__file__).with_name("docs.html").read_text(encoding="utf-8"))
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
_HEADERS: Final = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_CODE: Final = re.compile(r"`([^`]+)`")


async def docs(request: Request) -> Response:
    return HTMLResponse(page(openapi.doors(request.app.routes)), headers=_HEADERS)


@cache
def page(served: tuple[Door, ...]) -> str:
    """The page of these doors."""
    document = openapi.document(served)
    groups = [group["name"] for group in document["tags"]]
    return _PAGE.substitute(
        style=_STYLE,
        title=escape(document["info"]["title"]),
        summary=escape(document["info"]["summary"]),
        version=escape(document["info"]["version"]),
        contents="".join(_contents(document, group) for group in groups),
        groups="".join(_group(document, group) for group in groups),
        models="".join(map(_model, sorted(document["components"]["schemas"].items()))),
    )


def _of_group(document: Schema, group: str) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if group in operation["tags"]:
                yield method.upper(), path, operation


def _contents(document: Schema, group: str) -> str:
    links = (
        f'<li><a href="#{operation["operationId"]}">{_door(method, path)}</a></li>'
        for method, path, operation in _of_group(document, group)
    )
    return f"<h2>{escape(group)}</h2><ul>{''.join(links)}</ul>"


def _group(document: Schema, group: str) -> str:
    sections = (_operation(*each) for each in _of_group(document, group))
    return f"<h2>{escape(group)}</h2>{''.join(sections)}"


def _operation(method: str, path: str, operation: Schema) -> str:
    return (
        f'<section id="{operation["operationId"]}"><h3>{_door(method, path)} {_scope(operation)}'
        f"</h3><p>{_prose(operation['summary'])}</p>"
        f"<pre>{escape(example(method, path, operation))}</pre>"
        f"{_parameters(operation['parameters'])}{_body(operation)}"
        f"{_answers(operation['responses'])}</section>"
    )


def _door(method: str, path: str) -> str:
    return f'<b class="{method.lower()}">{method}</b> <code>{escape(path)}</code>'


def _scope(operation: Schema) -> str:
    scopes = {scope for each in operation["security"] for way in each.values() for scope in way}
    return f'<span class="scope">{escape(", ".join(scopes) or "no key")}</span>'


def example(method: str, path: str, operation: Schema) -> str:
    """A command that does it."""
    words = ["curl"]
    if EVENT_STREAM in operation["responses"].get("200", {}).get("content", {}):
        words.append("-N")
    if method != "GET":
        words.append(f"-X {method}")
    if any("key" in each for each in operation["security"]):
        words.append('-H "Authorization: Bearer $VOICEGW_API_KEY"')
        words.append("\\\n ")
    elif operation["security"]:
        words.append('-b "$SESSION_COOKIE" -H "Origin: $VOICEGW_COLLECTOR_URL"')
        words.append("\\\n ")
    words.append(f'"$VOICEGW_COLLECTOR_URL{_address(path, operation["parameters"])}"')
    if "requestBody" in operation:
        sent = operation["requestBody"]["content"][JSON]["example"]
        words.append(f"\\\n  -d '{json.dumps(sent)}'")
    return " ".join(words)


def _address(path: str, parameters: list[Schema]) -> str:
    shown = {each["name"]: each for each in parameters if "example" in each}
    for name, each in shown.items():
        path = path.replace(f"{{{name}}}", quote(str(each["example"]), safe=""))
    query = {name: _sent(each["example"]) for name, each in shown.items() if each["in"] == "query"}
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def _sent(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool) else value


def _parameters(parameters: list[Schema]) -> str:
    rows = (
        (
            f"<code>{escape(each['name'])}</code>",
            each["in"],
            _kind(each["schema"]),
            _prose(each["description"]),
        )
        for each in parameters
    )
    return _table(("parameter", "in", "value", "meaning"), rows) if parameters else ""


def _body(operation: Schema) -> str:
    if "requestBody" not in operation:
        return ""
    content = operation["requestBody"]["content"][JSON]
    may = "" if operation["requestBody"]["required"] else ", which may be left out"
    return f"<p>Takes {_kind(content['schema'])}{may}.</p>"


def _answers(responses: Schema) -> str:
    rows = (
        (
            f"<code>{status}</code> {escape(HTTPStatus(int(status)).phrase)}",
            _prose(answer["description"]),
            ", ".join(_content(*each) for each in answer.get("content", {}).items()),
        )
        for status, answer in sorted(responses.items())
    )
    return _table(("answer", "meaning", "body"), rows)


def _content(media_type: str, content: Schema) -> str:
    if "$ref" in content["schema"]:
        return _kind(content["schema"])
    return f"<code>{escape(media_type)}</code>"


def _model(named: tuple[str, Schema]) -> str:
    name, schema = named
    required = schema.get("required", ())
    rows = (
        (
            f"<code>{escape(field)}</code>{'' if field in required else ' <i>optional</i>'}",
            _kind(kind),
            _prose(kind.get("description", "")),
        )
        for field, kind in schema["properties"].items()
    )
    fields = _table(("field", "value", "meaning"), rows)
    return (
        f'<section id="{escape(name)}"><h3>{escape(name)}</h3>'
        f"<p>{_prose(schema.get('description', ''))}</p>{fields}</section>"
    )


def _kind(schema: Schema) -> str:
    """What a value may be, in a few words."""
    match schema:
        case {"$ref": str(ref)}:
            name = escape(ref.rpartition("/")[2])
            return f'<a href="#{name}">{name}</a>'
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(map(_kind, choices))
        case {"enum": values}:
            return ", ".join(f"<code>{escape(str(value))}</code>" for value in values)
        case {"const": value}:
            return f"<code>{escape(str(value))}</code>"
        case {"type": "array"}:
            return f"list of {_kind(schema.get('items', {}))}"
        case {"type": str(kind)}:
            return escape(" ".join([kind, *_limits(schema)]))
    return "anything"


def _limits(schema: Schema) -> Iterator[str]:
    if "minimum" in schema:
        yield f"from {schema['minimum']}"
    if "maximum" in schema:
        yield f"to {schema['maximum']}"
    if "maxLength" in schema:
        yield f"of {schema.get('minLength', 0)} to {schema['maxLength']} characters"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _prose(text: str) -> str:
    """Escaped, with what stands in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))
