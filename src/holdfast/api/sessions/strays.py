"""/v1/strays: what the database does not know any more, though it was somebody's. For admins."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from holdfast.api.protocols import StrayService
from holdfast.api.sessions.copy_models import StrayList, StrayOut
from holdfast.api.wire.common import failures, reply
from holdfast.api.wire.text import Name

StrayId = Annotated[Name, Path(description="ses_…, snp_… or wsp_…")]


def router(strays: StrayService) -> APIRouter:
    routes = APIRouter(tags=["strays"])

    @routes.get("/v1/strays", response_model=StrayList, responses=failures(503), summary="List what is set aside")
    async def list_() -> Response:
        """Sandboxes, snapshots and workspaces of this host that no row knows of. Those set aside last come first."""
        return reply(StrayList(strays=[StrayOut.of(view) for view in await strays.list()]))

    @routes.post(
        "/v1/strays/{stray_id}/adopt",
        response_model=StrayOut,
        responses=failures(404, 409, 422, 502, 503),
        summary="Bring back what is set aside",
    )
    async def adopt(stray_id: StrayId) -> Response:
        """With its id, its owner and its files. A sandbox runs then, with its processes if it was only frozen."""
        return reply(StrayOut.of(await strays.adopt(stray_id)))

    @routes.delete(
        "/v1/strays/{stray_id}",
        status_code=204,
        responses=failures(404, 409, 422, 503),
        summary="Remove what is set aside",
    )
    async def remove(stray_id: StrayId) -> Response:
        """With its files, before its time is up."""
        await strays.remove(stray_id)
        return Response(status_code=204)

    return routes
