"""/v1/sessions/{id}/tunnels: names for ports of a session."""

from typing import Annotated

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.api.gateway.links import TunnelName
from holdfast.api.services import asked_at
from holdfast.api.wire.common import SessionId, reply
from holdfast.api.wire.models import Output
from holdfast.api.wire.models import Request as Body
from holdfast.api.wire.routes import READ, SESSION, USE, Routes
from holdfast.api.wire.text import Timestamp
from holdfast.gateway.links import Links
from holdfast.gateway.tunnels import Tunnels
from holdfast.records.gateway import HostHeader, TunnelRow


class TunnelIn(Body):
    name: Annotated[str, Field(max_length=100)] = Field(description="1 to 30 of a-z, 0-9 and single hyphens")
    port: Annotated[int, Field(strict=True, ge=1, le=65535)]
    host: HostHeader | None = Field(
        default=None,
        description="What the program sees as its host name: by default the browser's below localhost, else 127.0.0.1",
    )


class _Tunnel(Output, record=TunnelRow):
    name: str
    port: int
    host: HostHeader | None
    created_at: Timestamp


class TunnelOut(_Tunnel):
    url: str = Field(description="Its address; to come in takes a link, a key or a token")


class TunnelList(BaseModel):
    tunnels: list[TunnelOut]


def router(tunnels: Tunnels, links: Links) -> Routes:
    routes = Routes("gateway")

    def out(row: TunnelRow, request: Request) -> TunnelOut:
        url = links.address(row.session_id, row.name, asked_at(request))
        return TunnelOut.of(row, url=url)

    @routes.post(
        f"{SESSION}/tunnels",
        "Give a port a name",
        scope=USE,
        returns=TunnelOut,
        status=201,
        fails=(404, 422, 429, 503),
    )
    async def put_tunnel(session_id: SessionId, request: Request, body: TunnelIn) -> Response:
        """Give a port a name, and so an address of its own; a name that is there leads to this port from now on."""
        return reply(out(await tunnels.put(session_id, body.name, body.port, body.host), request), 201)

    @routes.get(f"{SESSION}/tunnels", "List tunnels", scope=READ, returns=TunnelList, fails=(404, 422, 503))
    async def list_tunnels(session_id: SessionId, request: Request) -> Response:
        """List the tunnels of a session by name."""
        return reply(TunnelList(tunnels=[out(row, request) for row in await tunnels.list(session_id)]))

    @routes.delete(f"{SESSION}/tunnels/{{tunnel}}", "Remove a tunnel", scope=USE, fails=(404, 422, 503))
    async def remove_tunnel(session_id: SessionId, tunnel: TunnelName) -> Response:
        """Remove a name. Whoever came in by it is not let in any more."""
        await tunnels.remove(session_id, tunnel)
        return Response(status_code=204)

    return routes
