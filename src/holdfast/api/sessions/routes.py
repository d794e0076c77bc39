"""/v1/sessions: create, show, list, put to sleep, wake, copy and destroy sessions."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.services import GatewayServices
from holdfast.api.sessions.copy_models import ForkIn, SessionForked
from holdfast.api.sessions.models import (
    HibernateIn,
    SessionCreate,
    SessionListed,
    SessionOut,
    SessionPage,
    SessionShown,
    SessionWoken,
    StatsOut,
    WakeIn,
)
from holdfast.api.settings import ApiSettings
from holdfast.api.wire.common import IdempotencyKey, SessionId, reply
from holdfast.api.wire.pieces import list_reply
from holdfast.api.wire.routes import IN_SESSION, READ, SESSION, USE, Routes
from holdfast.api.wire.text import Name
from holdfast.errors import BadInput
from holdfast.records.machine import PausedAs, Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.service import SessionService


def router(service: SessionService, gateway: GatewayServices, settings: ApiSettings) -> Routes:
    routes = Routes("sessions")

    @routes.post(
        "/v1/sessions",
        "Make a session",
        scope=USE,
        returns=SessionShown,
        status=201,
        fails=(409, 413, 422, 429, 503),
    )
    async def create_session(
        caller: CallerOf, key: IdempotencyKey, request: Request, body: SessionCreate | None = None
    ) -> Response:
        """Make a session, and return when it is active. Without a body, everything takes the daemon's defaults."""
        row = await service.create((body or SessionCreate()).request(), idempotency_key=key, caller=caller)
        urls = gateway.urls(row.id, await gateway.tunnels.labels_of_new(row), request)
        return reply(SessionShown.of(row, urls=urls), 201, {"Location": f"/v1/sessions/{row.id}"})

    @routes.get("/v1/sessions", "List sessions", scope=READ, returns=SessionPage, fails=(422, 503))
    async def list_sessions(
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
        listed = (SessionListed.of(row, stats=used.get(row.id) and StatsOut.of(used[row.id])) for row in rows)
        return await list_reply("sessions", listed, {"next_cursor": following})

    @routes.get(SESSION, "Look at a session", scope=READ, returns=SessionShown, fails=(404, 410, 422, 503))
    async def get_session(session_id: SessionId, request: Request) -> Response:
        row = await service.get(session_id)
        return reply(SessionShown.of(row, urls=gateway.urls(row.id, await gateway.tunnels.labels(row.id), request)))

    @routes.get(
        f"{SESSION}/stats", "What a session uses", scope=READ, returns=StatsOut, fails=(404, 409, 410, 422, 503)
    )
    async def get_session_stats(session_id: SessionId) -> Response:
        """Return what the session uses now (CPU, memory, disk, processes), and the limits that are enforced. This does
        not count as use."""
        return reply(StatsOut.of(await service.stats(session_id)))

    @routes.post(f"{SESSION}/pause", "Freeze a session in memory", scope=USE, returns=SessionOut, fails=IN_SESSION)
    async def pause_session(session_id: SessionId) -> Response:
        """Freeze the session: its processes stand still, and go on at the next use. This is refused while it is in
        use."""
        return reply(SessionOut.of(await service.pause(session_id, PausedAs.FROZEN)))

    @routes.post(
        f"{SESSION}/hibernate",
        "Stop a session and keep its memory, or its files and shells",
        scope=USE,
        returns=SessionOut,
        fails=(*IN_SESSION, 413),
    )
    async def hibernate_session(session_id: SessionId, wish: HibernateIn | None = None) -> Response:
        """Stop the session: it holds no process and no memory any more. The next use brings back what was kept.

        Memory is kept where the driver can; with `{"as": "files"}`, or where it cannot, background processes end.
        """
        how = PausedAs(wish.as_) if wish and wish.as_ else None
        return reply(SessionOut.of(await service.pause(session_id, how)))

    @routes.post(f"{SESSION}/resume", "Let a frozen session go on", scope=USE, returns=SessionWoken, fails=IN_SESSION)
    async def resume_session(session_id: SessionId) -> Response:
        """Wake the session, as any use of it does. The answer says what came back."""
        return _woken(*await service.wake(session_id))

    @routes.post(
        f"{SESSION}/restore",
        "Bring back a stopped session",
        scope=USE,
        returns=SessionWoken,
        fails=IN_SESSION,
    )
    async def restore_session(session_id: SessionId, wish: WakeIn | None = None) -> Response:
        """Bring back a session under its id. One that is in error comes back from its files, with fresh processes.

        `{"as": "files"}` gives up memory that was kept: the way out if it cannot be restored.
        """
        how = PausedAs.FILES if wish and wish.as_ else None
        return _woken(*await service.revive(session_id, how))

    @routes.post(
        f"{SESSION}/fork",
        "Copy a session",
        scope=USE,
        returns=SessionForked,
        status=201,
        fails=(*IN_SESSION, 413, 429),
    )
    async def fork_session(
        session_id: SessionId, caller: CallerOf, key: IdempotencyKey, body: ForkIn | None = None
    ) -> Response:
        """Make a new session with this one's files, shells, environment and policies as they are now. This one goes on
        as before."""
        copy, kind = await service.fork(session_id, (body or ForkIn()).request(), idempotency_key=key, caller=caller)
        return reply(SessionForked.of(copy, restored=kind.value), 201, {"Location": f"/v1/sessions/{copy.id}"})

    @routes.delete(SESSION, "Destroy a session", scope=USE, fails=(404, 409, 422, 503))
    async def destroy_session(session_id: SessionId) -> Response:
        """Destroy the session with all its files and processes. This works from any state, and a second time, too."""
        await service.destroy(session_id)
        return Response(status_code=204)

    return routes


def _woken(row: SessionRow, slept_as: PausedAs | None) -> Response:
    restored = None if slept_as is None else "files" if slept_as is PausedAs.FILES else "memory"
    return reply(SessionWoken.of(row, restored=restored))


def statuses(given: Sequence[str] | None) -> list[Status] | None:
    """Read ``?status=a&status=b,c``. Nothing named means all that are not destroyed."""
    names = [name for text in given or () for part in text.split(",") if (name := part.strip())]
    try:
        return [Status(name) for name in dict.fromkeys(names)] or None
    except ValueError:
        raise BadInput(f"status: must be one of {', '.join(Status)}") from None
