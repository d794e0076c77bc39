"""/v1/sessions/{id}/services: programs of a session that are started when somebody wants them."""

from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.api.exec.streams import Offset
from holdfast.api.wire.chunks import ChunkOut
from holdfast.api.wire.common import SessionId, reply
from holdfast.api.wire.models import Output
from holdfast.api.wire.patterns import GIVEN_ID
from holdfast.api.wire.pieces import list_reply
from holdfast.api.wire.routes import IN_SESSION, READ, SESSION, USE, Routes
from holdfast.api.wire.text import Timestamp
from holdfast.gateway.links import Links
from holdfast.gateway.services.engine import MOST_LOG, SessionServices
from holdfast.gateway.services.run import ServiceView
from holdfast.gateway.services.states import ServiceState

ServiceName = Annotated[str, Path(pattern=GIVEN_ID, description="the name of a service, such as ide")]
_PATH = f"{SESSION}/services"
_ONE = f"{_PATH}/{{service}}"


class _Service(Output, record=ServiceView):
    name: str
    title: str = Field(description="What people call it")
    state: ServiceState = Field(description="failed: it could not be started, or has died; see reason")
    port: int | None = Field(description="Where it answers in the sandbox; null for the terminal")
    process_id: str | None = Field(description="Its process, while the session knows of one")
    started_at: Timestamp | None = Field(description="While it is starting or ready")
    reason: str | None = Field(description="Why it does not run: for a failure with the end of its output")


class ServiceOut(_Service):
    url: str = Field(description="Its address; to come in takes a link, a key or a token")


class ServiceList(BaseModel):
    services: list[ServiceOut]


class ServiceLogOut(BaseModel):
    chunks: list[ChunkOut]
    next_offset: int = Field(description="What to ask for next")


def router(services: SessionServices, links: Links) -> Routes:
    routes = Routes("gateway")

    def out(view: ServiceView, session_id: str, request: Request) -> ServiceOut:
        return ServiceOut.of(view, url=links.address(session_id, view.name, request.headers.get("host", "")))

    @routes.get(_PATH, "List services", scope=READ, returns=ServiceList, fails=IN_SESSION)
    async def list_services(session_id: SessionId, request: Request) -> Response:
        """List what the session's image declares, and the terminal, which every session has. It wakes nothing: of a
        session that sleeps, all are stopped."""
        found = await services.list(session_id)
        return reply(ServiceList(services=[out(view, session_id, request) for view in found]))

    @routes.post(_ONE, "Start a service", scope=USE, returns=ServiceOut, fails=(*IN_SESSION, 403, 502))
    async def start_service(session_id: SessionId, service: ServiceName, request: Request) -> Response:
        """Start a service unless it runs, and return when it is ready. It wakes the session. If it fails, the error
        says why, with the end of its output."""
        return reply(out(await services.start(session_id, service), session_id, request))

    @routes.delete(_ONE, "Stop a service", scope=USE, fails=IN_SESSION)
    async def stop_service(session_id: SessionId, service: ServiceName) -> Response:
        """Stop a service: TERM, and KILL after 10 s. One that does not run is no error. It starts again when somebody
        wants it, however often it has failed before."""
        await services.stop(session_id, service)
        return Response(status_code=204)

    @routes.get(f"{_ONE}/log", "Read what a service has written", scope=READ, returns=ServiceLogOut, fails=IN_SESSION)
    async def read_service_log(
        session_id: SessionId,
        service: ServiceName,
        offset: Offset = 0,
        max_bytes: Annotated[int, Query(ge=1, le=MOST_LOG)] = MOST_LOG,
    ) -> Response:
        """Return what it has written in this run, or in the last one, from an offset on; 1 MB is kept."""
        log = await services.log(session_id, service, offset=offset, limit=max_bytes)
        return await list_reply("chunks", map(ChunkOut.of, log.chunks), {"next_offset": log.next_offset})

    return routes
