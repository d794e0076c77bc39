"""/v1/keys: who may use this daemon, and for what."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from holdfast.api.admin.key_models import KeyAdd, KeyAdded, KeyList, KeyOut
from holdfast.api.protocols import KeyService
from holdfast.api.wire.common import failures, reply
from holdfast.api.wire.text import Name


def router(keys: KeyService) -> APIRouter:
    routes = APIRouter(tags=["keys"])

    @routes.get("/v1/keys", response_model=KeyList, responses=failures(503), summary="List keys")
    async def list_() -> Response:
        """Without the root key, which is in the daemon's configuration or state directory."""
        return reply(KeyList(keys=[KeyOut.of(view) for view in await keys.list()]))

    @routes.post(
        "/v1/keys",
        status_code=201,
        response_model=KeyAdded,
        responses=failures(409, 413, 422, 503),
        summary="Make a key",
    )
    async def add(body: KeyAdd) -> Response:
        """The key itself is in this answer and nowhere else."""
        view, text = await keys.add(
            body.name, body.scope, owner=body.owner, max_sessions=body.max_sessions, ceilings=body.ceilings()
        )
        return reply(KeyAdded(**KeyOut.of(view).model_dump(), key=text), 201, {"Cache-Control": "no-store"})

    @routes.delete("/v1/keys/{name}", status_code=204, responses=failures(404, 422, 503), summary="Remove a key")
    async def remove(name: Annotated[Name, Path()]) -> Response:
        """It is locked out at once. Its sessions live on; admins see them."""
        await keys.remove(name)
        return Response(status_code=204)

    return routes
