"""/v1/sessions: make, look, list, destroy."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.protocols import SessionService
from holdfast.api.sessions.copy_models import ForkIn, SessionForked
from holdfast.api.sessions.models import (
    HibernateIn,
    SessionCreate,
    SessionListed,
    SessionOut,
    SessionPage,
    SessionWoken,
    StatsOut,
    WakeIn,
)
from holdfast.api.settings import ApiSettings
from holdfast.api.wire.common import IdempotencyKey, SessionId, failures, reply
from holdfast.api.wire.pieces import list_reply
from holdfast.api.wire.text import Name
from holdfast.errors import BadInput
from holdfast.records.machine import PausedAs, Status


def router(service: SessionService, settings: ApiSettings) -> APIRouter:
    routes = APIRouter(tags=["sessions"])

    @routes.post(
        "/v1/sessions",
        status_code=201,
        response_model=SessionOut,
        responses=failures(409, 413, 422, 429, 503),
        summary="Make a session",
    )
    async def create(caller: CallerOf, key: IdempotencyKey, body: SessionCreate | None = None) -> Response:
        """Returns when the session is active. Without a body, everything takes the daemon's defaults."""
        row = await service.create((body or SessionCreate()).request(), idempotency_key=key, caller=caller)
        return reply(SessionOut.of(row), 201, {"Location": f"/v1/sessions/{row.id}"})

    @routes.get("/v1/sessions", response_model=SessionPage, responses=failures(422, 503), summary="List sessions")
    async def list_(
        caller: CallerOf,
        status: Annotated[
            list[str] | None,
            Query(description="Only these statuses; repeat it or separate them by commas: " + ", ".join(Status)),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=settings.max_page)] = settings.default_page,
        cursor: Annotated[Name | None, Query(description="next_cursor of the page before")] = None,
        stats: Annotated[bool, Query(description="Also what each active session uses")] = False,
    ) -> Response:
        rows, following = await service.list(status=statuses(status), limit=limit, cursor=cursor, caller=caller)
        used = await service.stats_of(rows) if stats else {}
        listed = (SessionListed.of_listed(row, used.get(row.id)) for row in rows)
        return await list_reply("sessions", listed, {"next_cursor": following})

    @routes.get(
        "/v1/sessions/{session_id}",
        response_model=SessionOut,
        responses=failures(404, 410, 422, 503),
        summary="Look at a session",
    )
    async def get(session_id: SessionId) -> Response:
        return reply(SessionOut.of(await service.get(session_id)))

    @routes.get(
        "/v1/sessions/{session_id}/stats",
        response_model=StatsOut,
        responses=failures(404, 409, 410, 422, 503),
        summary="What a session uses",
    )
    async def stats_(session_id: SessionId) -> Response:
        """CPU, memory, disk and processes now, and the limits that are enforced. Does not count as use."""
        return reply(StatsOut.of(await service.stats(session_id)))

    @routes.post(
        "/v1/sessions/{session_id}/pause",
        response_model=SessionOut,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="Freeze a session in memory",
    )
    async def pause(session_id: SessionId) -> Response:
        """Its processes stand still, and go on at the next use. Refused while it is in use."""
        return reply(SessionOut.of(await service.pause(session_id, PausedAs.FROZEN)))

    @routes.post(
        "/v1/sessions/{session_id}/hibernate",
        response_model=SessionOut,
        responses=failures(404, 409, 410, 413, 422, 502, 503),
        summary="Stop a session and keep its memory, or its files and shells",
    )
    async def hibernate(session_id: SessionId, wish: HibernateIn | None = None) -> Response:
        """It holds no process and no memory any more. The next use brings back what was kept.

        Memory is kept where the driver can; with `{"as": "files"}`, or where it cannot, background processes end.
        """
        how = PausedAs(wish.as_) if wish and wish.as_ else None
        return reply(SessionOut.of(await service.pause(session_id, how)))

    async def resume(session_id: SessionId) -> Response:
        """Any use wakes a session too. The answer says what came back."""
        return reply(SessionWoken.of_wake(*await service.wake(session_id)))

    async def restore(session_id: SessionId, wish: WakeIn | None = None) -> Response:
        """Also one that is in error, if its files are still there: under the same id, with fresh processes.

        `{"as": "files"}` gives up memory that was kept: the way out if it cannot be restored.
        """
        how = PausedAs.FILES if wish and wish.as_ else None
        return reply(SessionWoken.of_wake(*await service.revive(session_id, how)))

    wakers = {"resume": (resume, "Let a frozen session go on"), "restore": (restore, "Bring back a stopped session")}
    for verb, (wake, what) in wakers.items():
        routes.add_api_route(
            f"/v1/sessions/{{session_id}}/{verb}",
            wake,
            methods=["POST"],
            response_model=SessionWoken,
            responses=failures(404, 409, 410, 422, 502, 503),
            summary=what,
            name=verb,
        )

    @routes.post(
        "/v1/sessions/{session_id}/fork",
        status_code=201,
        response_model=SessionForked,
        responses=failures(404, 409, 410, 413, 422, 429, 502, 503),
        summary="Copy a session",
    )
    async def fork(
        session_id: SessionId, caller: CallerOf, key: IdempotencyKey, body: ForkIn | None = None
    ) -> Response:
        """A new session with its files, shells, environment and policies as they are now. It goes on as before."""
        made = await service.fork(session_id, (body or ForkIn()).request(), idempotency_key=key, caller=caller)
        return reply(SessionForked.of_fork(*made), 201, {"Location": f"/v1/sessions/{made[0].id}"})

    @routes.delete(
        "/v1/sessions/{session_id}",
        status_code=204,
        responses=failures(404, 409, 422, 503),
        summary="Destroy a session",
    )
    async def destroy(session_id: SessionId) -> Response:
        """From any state, also twice. All its files and processes go with it."""
        await service.destroy(session_id)
        return Response(status_code=204)

    return routes


def statuses(given: Sequence[str] | None) -> list[Status] | None:
    """``?status=a&status=b,c`` as statuses; nothing named means all that are not destroyed."""
    names = [name for text in given or () for part in text.split(",") if (name := part.strip())]
    try:
        return [Status(name) for name in dict.fromkeys(names)] or None
    except ValueError:
        raise BadInput(f"status: must be one of {', '.join(Status)}") from None
