"""The one translator: an error's code → its status and problem document."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from collector.api.parts import Parts
from collector.errors import (
    NO_ROUTE,
    CollectorError,
    Internal,
    MethodNotAllowed,
    NotFound,
    Unauthenticated,
)
from collector.logs import caller, refusal
from collector.redaction import redacted

STATUSES: Final = {
    "malformed_request": 400,
    "malformed_json": 400,
    "unauthenticated": 401,
    "missing_scope": 403,
    "foreign_origin": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "not_active": 409,
    "too_large": 413,
    "invalid_field": 422,
    "quota_exceeded": 429,
    "too_many_reads": 429,
    "too_many_subscribers": 429,
    "head_too_large": 431,
    "internal": 500,
    "overloaded": 503,
    "not_ready": 503,
    "store_unavailable": 503,
}
# What the store says about itself is for the log; a client only needs to know that it may retry.
_PUBLIC_DETAIL: Final = {"store_unavailable": "The store does not answer; try again."}


def problem(error: CollectorError) -> Response:
    """The problem document of an error.

    Names of unknown fields are told as they were sent, but for keys: an answer may be kept.
    """
    status = STATUSES.get(error.code, 500)
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": redacted(_PUBLIC_DETAIL.get(error.code, error.detail)),
        "code": error.code,
        "errors": [
            {"field": redacted(field), "message": message} for field, message in error.errors
        ],
    }
    return Response(to_json(body), status, dict(error.headers), "application/problem+json")


async def on_collector_error(request: Request, error: Exception) -> Response:
    # A coroutine: a plain function would be sent to a thread, for every error.
    assert isinstance(error, CollectorError)
    Parts.of(request).metrics.refusals.labels(error.code).inc()
    return refused(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """The router's own refusals, in our words."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refused(NotFound(NO_ROUTE))
    if error.status_code == 405:
        wrong = MethodNotAllowed(f"This route does not take {request.method}.")
        wrong.headers = dict(error.headers or {})
        return refused(wrong)
    return refused(Internal(error.detail))


def refused(error: CollectorError) -> Response:
    """The problem document of what ends this request; the request's log line tells of it too."""
    refusal.set(error)
    if isinstance(error, Unauthenticated) and error.whose is not None:
        caller.set(error.whose)
    return problem(error)
