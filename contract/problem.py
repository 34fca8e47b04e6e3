"""An error as clients see it: a problem document (RFC 9457) with a stable code."""

from __future__ import annotations

from pydantic import BaseModel, Field


class FieldError(BaseModel):
    """What is wrong with one field."""

    field: str = Field(description="The field's name; `body` for the body as a whole.")
    message: str


class Problem(BaseModel):
    """The body of every answer with a status of 400 or more."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable; CONTRACT.md lists every one.")
    errors: list[FieldError] = []
