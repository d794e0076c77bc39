"""/v1/keys: who may use this daemon, and for what."""

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.api.wire.common import reply
from holdfast.api.wire.models import From, Output, Request
from holdfast.api.wire.patterns import KEY_NAME
from holdfast.api.wire.routes import ADMIN, Routes
from holdfast.api.wire.text import Name, Timestamp
from holdfast.callers.ceilings import Ceilings
from holdfast.callers.ring import KeyRing
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


def router(keys: KeyRing) -> Routes:
    routes = Routes("keys")

    @routes.get("/v1/keys", "List keys", scope=ADMIN, returns=KeyList, fails=(503,))
    async def list_keys() -> Response:
        """List all keys but the root key, which is in the daemon's configuration or state directory."""
        return reply(KeyList(keys=[KeyOut.of(view) for view in await keys.list()]))

    @routes.post(
        "/v1/keys",
        "Make a key",
        scope=ADMIN,
        returns=KeyAdded,
        status=201,
        fails=(409, 413, 422, 503),
    )
    async def add_key(body: KeyAdd) -> Response:
        """Make a key. The key itself is in this answer and nowhere else."""
        view, text = await keys.add(
            body.name, body.scope, owner=body.owner, max_sessions=body.max_sessions, ceilings=body.ceilings()
        )
        return reply(KeyAdded.of(view, key=text), 201, {"Cache-Control": "no-store"})

    @routes.delete("/v1/keys/{name}", "Remove a key", scope=ADMIN, fails=(404, 422, 503))
    async def remove_key(name: Annotated[Name, Path()]) -> Response:
        """Remove a key. It is locked out at once; its sessions live on, and admins see them."""
        await keys.remove(name)
        return Response(status_code=204)

    return routes
