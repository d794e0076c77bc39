"""/v1/workspaces: named directories that outlive sessions. They are made by the first session that names them."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.protocols import WorkspaceService
from holdfast.api.sessions.copy_models import WorkspaceList, WorkspaceOut
from holdfast.api.wire.common import failures, reply
from holdfast.api.wire.text import Name


def router(workspaces: WorkspaceService) -> APIRouter:
    routes = APIRouter(tags=["workspaces"])

    @routes.get("/v1/workspaces", response_model=WorkspaceList, responses=failures(503), summary="List workspaces")
    async def list_(caller: CallerOf) -> Response:
        """By name."""
        views = await workspaces.list(caller=caller)
        return reply(WorkspaceList(workspaces=[WorkspaceOut.of(view) for view in views]))

    @routes.delete(
        "/v1/workspaces/{reference}",
        status_code=204,
        responses=failures(404, 409, 422, 503),
        summary="Remove a workspace",
    )
    async def delete(reference: Annotated[Name, Path(description="its name, or wsp_…")], caller: CallerOf) -> Response:
        """With all its files. Refused while a session has it, also one that sleeps."""
        await workspaces.delete(reference, caller=caller)
        return Response(status_code=204)

    return routes
