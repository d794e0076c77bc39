"""Keys as they look on the wire."""

from typing import Annotated

from pydantic import BaseModel, Field

from holdfast.api.wire.models import From, Output, Request
from holdfast.api.wire.patterns import KEY_NAME
from holdfast.api.wire.text import Timestamp
from holdfast.callers.ceilings import Ceilings
from holdfast.callers.types import KeyView, Scope

_MOST = 2**53
_Ceiling = Annotated[int, Field(strict=True, gt=0, le=_MOST)]
KeyName = Annotated[str, Field(pattern=KEY_NAME)]


class KeyAdd(Request):
    name: KeyName
    scope: Scope
    owner: KeyName | None = Field(default=None, description="Whose sessions it makes and sees; by default its own")
    max_sessions: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="How many live sessions its owner may have; by default max_sessions_per_key"
    )
    max_cpus: Annotated[float, Field(strict=True, gt=0, le=_MOST, allow_inf_nan=False)] | None = Field(
        default=None, description="The most that a session may have which it makes; the daemon's ceilings hold as well"
    )
    max_memory_mb: _Ceiling | None = None
    max_pids: _Ceiling | None = None
    max_disk_mb: _Ceiling | None = None

    def ceilings(self) -> Ceilings:
        return Ceilings(self.max_cpus, self.max_memory_mb, self.max_pids, self.max_disk_mb)


class KeyOut(Output, record=KeyView):
    id: str
    name: str
    scope: Scope
    owner: str
    max_sessions: int | None
    created_at: Timestamp
    last_used_at: Timestamp | None
    max_cpus: Annotated[float | None, From("ceilings.max_cpus")]
    max_memory_mb: Annotated[int | None, From("ceilings.max_memory_mb")]
    max_pids: Annotated[int | None, From("ceilings.max_pids")]
    max_disk_mb: Annotated[int | None, From("ceilings.max_disk_mb")]


class KeyAdded(KeyOut):
    key: str = Field(description="The key itself; this is the only time that it is shown")


class KeyList(BaseModel):
    keys: list[KeyOut]
