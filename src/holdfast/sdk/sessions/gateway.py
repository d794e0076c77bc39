"""The way in for browsers: links to ports of a session, and names for ports."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import quote

from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.results import of_wire


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """A link that was made. ``label`` is the port, or the name of a tunnel or service."""

    id: str
    label: str
    name: str | None
    public: bool
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewLink(LinkInfo):
    """A link, and its address, which nobody can ask for again."""

    url: str


@dataclass(frozen=True, slots=True)
class TunnelInfo:
    """A name for a port. At ``url`` there is what listens; coming in takes a link, a key or a token."""

    name: str
    port: int
    host: Literal["pass", "rewrite"] | None
    created_at: datetime
    url: str


class Links:
    """The links of one session: ``session.links``."""

    def __init__(self, transport: Transport, session_path: str) -> None:
        self._transport = transport
        self._path = session_path

    async def create(
        self,
        target: int | str,
        *,
        ttl_seconds: int | None = None,
        public: bool = False,
        name: str | None = None,
        path: str = "/",
    ) -> NewLink:
        """Make a link to a port, or to the name of a tunnel or service. It is good once, unless it is public."""
        kind = "ports" if isinstance(target, int) else "tunnels"
        body = {"ttl_seconds": ttl_seconds, "public": public, "name": name, "path": path}
        where = f"{self._path}/{kind}/{quote(str(target), safe='')}/link"
        return of_wire(NewLink, await self._transport.call("POST", where, json_body=body))

    async def list(self) -> list[LinkInfo]:
        data = await self._transport.call("GET", f"{self._path}/links")
        return [of_wire(LinkInfo, one) for one in data["links"]]

    async def revoke(self, link_id: str) -> None:
        """Make a link worthless, and lock out who came in by it."""
        await self._transport.call("DELETE", f"{self._path}/links/{quote(link_id, safe='')}")


class Tunnels:
    """The named ports of one session: ``session.tunnels``."""

    def __init__(self, transport: Transport, session_path: str) -> None:
        self._transport = transport
        self._path = f"{session_path}/tunnels"

    async def put(self, name: str, port: int, *, host: Literal["pass", "rewrite"] | None = None) -> TunnelInfo:
        """Give a port a name; a name that is there leads to this port from now on."""
        body = {"name": name, "port": port, "host": host}
        return of_wire(TunnelInfo, await self._transport.call("POST", self._path, json_body=body))

    async def list(self) -> list[TunnelInfo]:
        data = await self._transport.call("GET", self._path)
        return [of_wire(TunnelInfo, one) for one in data["tunnels"]]

    async def remove(self, name: str) -> None:
        await self._transport.call("DELETE", f"{self._path}/{quote(name, safe='')}")
