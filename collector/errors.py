"""Everything that can go wrong, each with the stable code that clients see.

CollectorError
├── MalformedRequest         malformed_request   what came is not HTTP
├── MalformedJSON            malformed_json      the body is not JSON
├── HeadTooLarge             head_too_large      the head is over its limits
├── RequestTimeout           request_timeout     the request was not whole in time
├── InvalidField             invalid_field       a field of the body or the query is wrong
├── TooLarge                 too_large           the body is over its limit
├── Unauthenticated          unauthenticated     no key or session, or none that opens anything
├── MissingScope             missing_scope       the key may not do this
├── ForeignOrigin            foreign_origin      a page of another origin asks with a cookie
├── NotFound                 not_found           no such worker, key, session or route
├── MethodNotAllowed         method_not_allowed  the route exists, for other methods
├── NotActive                not_active          the key is revoked, expired or rotated already
├── QuotaExceeded            quota_exceeded      the tenant has or does as much as it may
├── TooManySubscribers       too_many_subscribers  the tenant's streams are as many as may be
├── TooManyReads             too_many_reads      the tenant's large reads are as many as may be
├── Overloaded               overloaded          a bounded queue is full
├── NotReady                 not_ready           a readiness check fails
├── Internal                 internal            a defect of ours
└── StoreError
    ├── StoreUnavailable     store_unavailable   unreachable, locked, full or restarting
    ├── Unstorable           invalid_field       the store refuses these very values
    ├── StoreBehind          store_behind        the schema is older than the code
    └── StoreTaken           store_taken         another collector holds the embedded store
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar


class CollectorError(Exception):
    """The root; `detail` is written for the person who has to fix it."""

    code: ClassVar[str]
    # An answer with this error says when to come back.
    retry_after_seconds: ClassVar[int | None] = None

    def __init__(
        self,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        after = retry_after_seconds or self.retry_after_seconds
        self.headers: Mapping[str, str] = {} if after is None else {"Retry-After": str(after)}


class MalformedRequest(CollectorError):
    code = "malformed_request"


class HeadTooLarge(CollectorError):
    code = "head_too_large"


class RequestTimeout(CollectorError):
    code = "request_timeout"


class MalformedJSON(CollectorError):
    code = "malformed_json"


class InvalidField(CollectorError):
    code = "invalid_field"

    @classmethod
    def of(cls, field: str, message: str) -> InvalidField:
        return cls(f"{field}: {message}", errors=[(field, message)])


class TooLarge(CollectorError):
    code = "too_large"


class Unauthenticated(CollectorError):
    """`whose` is the tenant and the key's id, for the log, where the secret was right but ended."""

    code = "unauthenticated"

    def __init__(self, detail: str, *, whose: tuple[str, str] | None = None) -> None:
        super().__init__(detail)
        self.headers = {"WWW-Authenticate": "Bearer"}
        self.whose = whose


class MissingScope(CollectorError):
    code = "missing_scope"


class ForeignOrigin(CollectorError):
    code = "foreign_origin"


class NotFound(CollectorError):
    code = "not_found"


NO_ROUTE = "There is no such route."


class MethodNotAllowed(CollectorError):
    code = "method_not_allowed"


class NotActive(CollectorError):
    code = "not_active"


class QuotaExceeded(CollectorError):
    code = "quota_exceeded"
    retry_after_seconds = 1

    @classmethod
    def of_keys(cls, most: int) -> QuotaExceeded:
        return cls(
            f"This tenant has {most} active keys, as many as it may; revoke one.",
            retry_after_seconds=60,
        )


class TooManySubscribers(CollectorError):
    code = "too_many_subscribers"
    retry_after_seconds = 10


class TooManyReads(CollectorError):
    code = "too_many_reads"
    retry_after_seconds = 1


class Overloaded(CollectorError):
    code = "overloaded"
    retry_after_seconds = 1

    @classmethod
    def stopping(cls) -> Overloaded:
        return cls("The collector is stopping.")


class NotReady(CollectorError):
    code = "not_ready"


class Internal(CollectorError):
    code = "internal"


class StoreError(CollectorError):
    """What a store may raise; nothing else escapes it."""


class StoreUnavailable(StoreError):
    code = "store_unavailable"
    retry_after_seconds = 1


class Unstorable(StoreError):
    code = "invalid_field"


class StoreBehind(StoreError):
    code = "store_behind"


class StoreTaken(StoreError):
    code = "store_taken"
