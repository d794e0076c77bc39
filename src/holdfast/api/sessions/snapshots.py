"""/v1/snapshots: what was kept of sessions, to start others from."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.protocols import SnapshotService
from holdfast.api.sessions.copy_models import SnapshotIn, SnapshotList, SnapshotOut
from holdfast.api.wire.common import IdempotencyKey, SessionId, failures, reply
from holdfast.api.wire.text import Name

Reference = Annotated[Name, Path(description="its name, or snp_…")]


def router(snapshots: SnapshotService) -> APIRouter:
    routes = APIRouter(tags=["snapshots"])

    @routes.post(
        "/v1/sessions/{session_id}/snapshots",
        status_code=201,
        response_model=SnapshotOut,
        responses=failures(404, 409, 410, 413, 422, 429, 502, 503),
        summary="Take a snapshot of a session",
    )
    async def create(
        session_id: SessionId, caller: CallerOf, key: IdempotencyKey, body: SnapshotIn | None = None
    ) -> Response:
        """Its files and shells at one moment. The session goes on as before, also if it sleeps."""
        name = None if body is None else body.name
        view = await snapshots.create(session_id, name, idempotency_key=key, caller=caller)
        return reply(SnapshotOut.of(view), 201, {"Location": f"/v1/snapshots/{view.id}"})

    @routes.get("/v1/snapshots", response_model=SnapshotList, responses=failures(503), summary="List snapshots")
    async def list_(caller: CallerOf) -> Response:
        """Newest first."""
        return reply(SnapshotList(snapshots=[SnapshotOut.of(view) for view in await snapshots.list(caller=caller)]))

    @routes.get(
        "/v1/snapshots/{reference}",
        response_model=SnapshotOut,
        responses=failures(404, 422, 503),
        summary="Look at a snapshot",
    )
    async def get(reference: Reference, caller: CallerOf) -> Response:
        return reply(SnapshotOut.of(await snapshots.get(reference, caller=caller)))

    @routes.delete(
        "/v1/snapshots/{reference}",
        status_code=204,
        responses=failures(404, 409, 422, 503),
        summary="Remove a snapshot",
    )
    async def delete(reference: Reference, caller: CallerOf) -> Response:
        """Refused while a session is being made from it. Those that were made from it do not need it any more."""
        await snapshots.delete(reference, caller=caller)
        return Response(status_code=204)

    return routes
