"""A key: what an admin asks for, and what is told of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from contract.vocabulary import (
    MAX_KEY_SECONDS,
    MAX_OVERLAP_SECONDS,
    OVERLAP_SECONDS,
    SCOPES,
    KeyState,
    Scope,
)
from contract.worker import Text, whole

Seconds = Annotated[int, Field(strict=True, ge=1, le=MAX_KEY_SECONDS), BeforeValidator(whole)]
Overlap = Annotated[int, Field(strict=True, ge=0, le=MAX_OVERLAP_SECONDS), BeforeValidator(whole)]


class KeyRequest(BaseModel):
    """A key to be made, for the caller's own tenant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scopes: list[Scope] = Field(
        min_length=1, max_length=len(SCOPES), description="Some of those that the caller holds."
    )
    name: Text | None = Field(None, description="A note for people: where this key is used.")
    expires_in_seconds: Seconds | None = Field(None, description="Never, if absent.")


class RotateRequest(BaseModel):
    """How long a key goes on beside its successor, and how long that one lasts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    overlap_seconds: Overlap = OVERLAP_SECONDS
    expires_in_seconds: Seconds | None = Field(
        None, description="If absent, as long as the key itself was made to last."
    )


class Key(BaseModel):
    """What is known of a key; never its plaintext."""

    id: str = Field(description="The key's first 8 characters after `vk_`.")
    name: str | None
    scopes: list[Scope]
    state: KeyState
    created_at: float
    expires_at: float | None
    last_used_at: float | None = Field(description="To a minute or so; null if never.")
    revoked_at: float | None


class NewKey(Key):
    """A key as it is made."""

    key: str = Field(description="The plaintext, shown only now.")


class Keys(BaseModel):
    """A tenant's keys, oldest first."""

    keys: list[Key]
    server_time: float
