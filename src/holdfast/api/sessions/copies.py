"""/v1/snapshots, /v1/workspaces and /v1/strays: what is kept of sessions, beside them or after them."""

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.sessions.copy_models import (
    SnapshotIn,
    SnapshotList,
    SnapshotOut,
    StrayList,
    StrayOut,
    WorkspaceList,
    WorkspaceOut,
)
from holdfast.api.wire.common import IdempotencyKey, SessionId, reply
from holdfast.api.wire.routes import ADMIN, IN_SESSION, READ, SESSION, USE, Routes
from holdfast.api.wire.text import Name
from holdfast.sessions.copies.snapshots import Snapshots
from holdfast.sessions.copies.workspaces import Workspaces
from holdfast.sessions.watch.strays import Strays

Reference = Annotated[Name, Path(description="its name, or snp_…")]


def snapshots_router(snapshots: Snapshots) -> Routes:
    routes = Routes("snapshots")

    @routes.post(
        f"{SESSION}/snapshots",
        "Take a snapshot of a session",
        scope=USE,
        returns=SnapshotOut,
        status=201,
        fails=(*IN_SESSION, 413, 429),
    )
    async def create_snapshot(
        session_id: SessionId, caller: CallerOf, key: IdempotencyKey, body: SnapshotIn | None = None
    ) -> Response:
        """Keep the session's files and shells as they are at this moment. The session goes on as before, also if it
        sleeps."""
        name = None if body is None else body.name
        view = await snapshots.create(session_id, name, idempotency_key=key, caller=caller)
        return reply(SnapshotOut.of(view), 201, {"Location": f"/v1/snapshots/{view.id}"})

    @routes.get("/v1/snapshots", "List snapshots", scope=READ, returns=SnapshotList, fails=(503,))
    async def list_snapshots(caller: CallerOf) -> Response:
        """List snapshots, the newest first."""
        return reply(SnapshotList(snapshots=[SnapshotOut.of(view) for view in await snapshots.list(caller=caller)]))

    @routes.get(
        "/v1/snapshots/{reference}", "Look at a snapshot", scope=READ, returns=SnapshotOut, fails=(404, 422, 503)
    )
    async def get_snapshot(reference: Reference, caller: CallerOf) -> Response:
        return reply(SnapshotOut.of(await snapshots.get(reference, caller=caller)))

    @routes.delete("/v1/snapshots/{reference}", "Remove a snapshot", scope=USE, fails=(404, 409, 422, 503))
    async def delete_snapshot(reference: Reference, caller: CallerOf) -> Response:
        """Delete a snapshot. This is refused while a session is being made from it; later on no session needs it."""
        await snapshots.delete(reference, caller=caller)
        return Response(status_code=204)

    return routes


def workspaces_router(workspaces: Workspaces) -> Routes:
    routes = Routes("workspaces")

    @routes.get("/v1/workspaces", "List workspaces", scope=READ, returns=WorkspaceList, fails=(503,))
    async def list_workspaces(caller: CallerOf) -> Response:
        """List workspaces by name."""
        views = await workspaces.list(caller=caller)
        return reply(WorkspaceList(workspaces=[WorkspaceOut.of(view) for view in views]))

    @routes.delete("/v1/workspaces/{reference}", "Remove a workspace", scope=USE, fails=(404, 409, 422, 503))
    async def delete_workspace(
        reference: Annotated[Name, Path(description="its name, or wsp_…")], caller: CallerOf
    ) -> Response:
        """Delete a workspace with all its files. This is refused while a session has it, also one that sleeps."""
        await workspaces.delete(reference, caller=caller)
        return Response(status_code=204)

    return routes


StrayId = Annotated[Name, Path(description="ses_…, snp_… or wsp_…")]


def strays_router(strays: Strays) -> Routes:
    routes = Routes("strays")

    @routes.get("/v1/strays", "List what is set aside", scope=ADMIN, returns=StrayList, fails=(503,))
    async def list_strays() -> Response:
        """List sandboxes, snapshots and workspaces of this host that no row of the database knows. Those set aside last
        come first."""
        return reply(StrayList(strays=[StrayOut.of(view) for view in await strays.list()]))

    @routes.post(
        "/v1/strays/{stray_id}/adopt",
        "Bring back what is set aside",
        scope=ADMIN,
        returns=StrayOut,
        fails=(404, 409, 422, 502, 503),
    )
    async def adopt_stray(stray_id: StrayId) -> Response:
        """Take a stray back with its id, its owner and its files. A sandbox runs then, with its processes if it was
        only frozen."""
        return reply(StrayOut.of(await strays.adopt(stray_id)))

    @routes.delete("/v1/strays/{stray_id}", "Remove what is set aside", scope=ADMIN, fails=(404, 409, 422, 503))
    async def remove_stray(stray_id: StrayId) -> Response:
        """Remove a stray with its files, before its time is up."""
        await strays.remove(stray_id)
        return Response(status_code=204)

    return routes
