"""Keys as they look on the wire."""

from typing import Annotated

from pydantic import BaseModel, Field

from holdfast.api.patterns import KEY_NAME
from holdfast.api.request_model import Request
from holdfast.api.text import Timestamp, timestamp
from holdfast.keys.types import KeyView, Scope

KeyName = Annotated[str, Field(pattern=KEY_NAME)]


class KeyAdd(Request):
    name: KeyName
    scope: Scope
    owner: KeyName | None = Field(default=None, description="Whose sessions it makes and sees; by default its own")
    max_sessions: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="How many live sessions its owner may have; by default max_sessions_per_key"
    )


class KeyOut(BaseModel):
    id: str
    name: str
    scope: Scope
    owner: str
    max_sessions: int | None
    created_at: Timestamp
    last_used_at: Timestamp | None

    @classmethod
    def of(cls, view: KeyView) -> "KeyOut":
        return cls(
            id=view.id,
            name=view.name,
            scope=view.scope,
            owner=view.owner,
            max_sessions=view.max_sessions,
            created_at=timestamp(view.created_at),
            last_used_at=None if view.last_used_at is None else timestamp(view.last_used_at),
        )


class KeyAdded(KeyOut):
    key: str = Field(description="The key itself; this is the only time that it is shown")


class KeyList(BaseModel):
    keys: list[KeyOut]
