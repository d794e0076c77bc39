"""/v1/sessions/{id}/links: links by which people without a key get in; and what programs need to let people in."""

from typing import Annotated

from fastapi import Path, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.services import asked_at
from holdfast.api.wire.common import SessionId, reply
from holdfast.api.wire.models import Output
from holdfast.api.wire.models import Request as Body
from holdfast.api.wire.patterns import GIVEN_ID, KEY_NAME
from holdfast.api.wire.routes import ADMIN, READ, SESSION, USE, Routes
from holdfast.api.wire.text import Timestamp, timestamp
from holdfast.callers.types import Caller
from holdfast.gateway.links import MAX_TTL_SECONDS, Links
from holdfast.gateway.tunnels import Tunnels
from holdfast.gateway.views.views import VIEWS
from holdfast.gateway.visits import Visits
from holdfast.records.gateway import LinkRow
from holdfast.sessions.service import SessionService

Port = Annotated[int, Path(ge=1, le=65535, description="a TCP port inside, from 1 to 65535")]
LinkId = Annotated[str, Path(pattern=GIVEN_ID, description="lnk_…")]
TunnelName = Annotated[str, Path(pattern=GIVEN_ID, description="the name of a tunnel or service")]
_FAILS = (404, 409, 410, 422, 503)


class LinkIn(Body):
    ttl_seconds: Annotated[int, Field(strict=True, ge=10, le=MAX_TTL_SECONDS)] | None = Field(
        default=None, description="By default 300 s to click it, and an hour for a public one"
    )
    public: bool = Field(default=False, description="Whoever knows the address gets in; takes public_links")
    name: Annotated[str, Field(pattern=KEY_NAME)] | None = Field(default=None, description="What you call it in lists")
    path: Annotated[str, Field(max_length=2000)] = Field(default="/", description="Where in the program it leads to")


class PortLinkOut(Output, record=LinkRow):
    id: str
    label: str
    name: str | None
    public: bool
    created_at: Timestamp
    expires_at: Timestamp
    used_at: Timestamp | None


class NewPortLinkOut(PortLinkOut):
    url: str = Field(description="The link itself; this is the only time that it is shown")


class LinkList(BaseModel):
    links: list[PortLinkOut]


class SecretOut(BaseModel):
    secret: str = Field(description="Signs tokens (HS256) for this session, and for no other")


class TicketOut(BaseModel):
    ticket: str = Field(description="Stands for your key, once")
    expires_at: Timestamp


def router(links: Links, tunnels: Tunnels, visits: Visits, sessions: SessionService) -> Routes:
    routes = Routes("gateway")

    async def make(session_id: str, label: str, caller: Caller, request: Request, body: LinkIn | None) -> Response:
        await sessions.get(session_id)
        body = body or LinkIn()
        made = await links.make(
            session_id,
            label,
            caller,
            asked_at=asked_at(request),
            ttl_seconds=body.ttl_seconds,
            public=body.public,
            name=body.name,
            path=body.path,
        )
        return reply(NewPortLinkOut.of(made.row, url=made.url), 201)

    @routes.post(
        f"{SESSION}/ports/{{port}}/link",
        "Make a link to a port",
        scope=USE,
        returns=NewPortLinkOut,
        status=201,
        fails=_FAILS,
    )
    async def create_port_link(
        session_id: SessionId, port: Port, caller: CallerOf, request: Request, body: LinkIn | None = None
    ) -> Response:
        """Make an address that a browser can open, once. The browser then stays in for as long as it is used."""
        tunnels.check_port(port)
        return await make(session_id, str(port), caller, request, body)

    @routes.post(
        f"{SESSION}/tunnels/{{tunnel}}/link",
        "Make a link to a tunnel",
        scope=USE,
        returns=NewPortLinkOut,
        status=201,
        fails=_FAILS,
    )
    async def create_tunnel_link(
        session_id: SessionId, tunnel: TunnelName, caller: CallerOf, request: Request, body: LinkIn | None = None
    ) -> Response:
        """As for a port, to what has this name."""
        if tunnel not in VIEWS:
            await tunnels.target(session_id, tunnel)
        return await make(session_id, tunnel, caller, request, body)

    @routes.get(f"{SESSION}/links", "List links", scope=READ, returns=LinkList, fails=(404, 422, 503))
    async def list_links(session_id: SessionId) -> Response:
        """List the links of a session, without their secrets."""
        return reply(LinkList(links=[PortLinkOut.of(row) for row in await links.list(session_id)]))

    @routes.delete(f"{SESSION}/links/{{link_id}}", "Revoke a link", scope=USE, fails=(404, 422, 503))
    async def revoke_link(session_id: SessionId, link_id: LinkId) -> Response:
        """Revoke a link. Whoever came in by it is locked out; connections that are open end within seconds."""
        await links.revoke(session_id, link_id)
        return Response(status_code=204)

    @routes.get(
        f"{SESSION}/gateway-secret",
        "Get the secret that signs tokens",
        scope=ADMIN,
        returns=SecretOut,
        fails=(404, 422, 503),
    )
    async def get_gateway_secret(session_id: SessionId) -> Response:
        """Get the secret by which a program of yours signs tokens for its users: claims sub, sid (this session) and
        exp."""
        await sessions.get(session_id)
        return reply(SecretOut(secret=visits.signing_secret(session_id)))

    @routes.post("/v1/tickets", "Get a ticket for a WebSocket", scope=USE, returns=TicketOut, status=201, fails=(503,))
    async def create_ticket(caller: CallerOf) -> Response:
        """Get a ticket, good once and for 30 s, for browsers: they cannot send a key with a WebSocket. It goes into
        Sec-WebSocket-Protocol, as "holdfast, ticket.…"."""
        ticket, until = await links.make_ticket(caller)
        return reply(TicketOut.model_construct(ticket=ticket, expires_at=timestamp(until)), 201)

    return routes
