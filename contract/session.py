"""A browser's session: what is told of it, never its token."""

from __future__ import annotations

from pydantic import BaseModel, Field

from contract.vocabulary import MAX_BROWSER, Scope


class Session(BaseModel):
    """A browser that signed in with a key, and so may do what that key may."""

    id: str
    tenant: str
    key_id: str
    key_name: str | None
    scopes: list[Scope]
    browser: str = Field(
        max_length=MAX_BROWSER, description="Made of its User-Agent: `Firefox on Linux`."
    )
    created_at: float
    expires_at: float = Field(description="Its own end, or its key's if that comes sooner.")
    current: bool = Field(description="Whether it is the one of the cookie that was sent.")


class CurrentSession(Session):
    """The cookie's own session."""

    server_time: float


class Sessions(BaseModel):
    """The sessions of one key, newest first."""

    sessions: list[Session]
    server_time: float
