"""An answer over HTTP, and what a case may demand of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx2

from conformance import expect
from conformance.expect import Breach

# A report keeps this much of an answer, and cuts it further once it has hidden the keys.
LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class Answer:
    """One response, read to its end."""

    request: str
    status: int
    headers: httpx2.Headers
    text: str

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.text)
        except ValueError:
            raise Breach("a JSON body", self._shown()) from None

    def was(self, *statuses: int) -> Answer:
        """Go on only if it is one of these."""
        expected = " or ".join(map(str, statuses))
        expect.true(self.status in statuses, f"{self.request}: {expected}", self._shown())
        return self

    def refused(self, status: int, code: str, *fields: str) -> Answer:
        """A problem with this code that names these fields among others."""
        problem = self.was(status).json
        expect.true(isinstance(problem, dict), "a JSON object", self._shown())
        expect.equal(problem.get("code"), code, f"{self.request}: code")
        named = [error.get("field") for error in problem.get("errors", [])]
        expect.true(set(fields) <= set(named), f"errors that name {', '.join(fields)}", named)
        return self

    @property
    def gist(self) -> str:
        """The part that is the same however the request was framed: times and ids are not."""
        kind = self.headers.get("content-type", "")
        is_problem = kind.split(";")[0] == "application/problem+json"
        return f"{self.status} {self.text}" if is_problem else str(self.status)

    def _shown(self) -> str:
        return f"{self.status} {self.text[:LONGEST]}"
