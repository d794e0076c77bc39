"""A connection that is no longer the HTTP server's: a WebSocket into a session, whose bytes go through as they are."""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

import httptools
from starlette.types import Scope

from holdfast.gateway.proxy.websocket import Client

LIMIT = 64 << 10
"""So much of what a browser sends is read before the other end has taken it."""
Carry = Callable[[Client], Awaitable[None]]


class TakenOver(asyncio.StreamReaderProtocol):
    """Stands in the server's list of connections in the place of the protocol that had it before."""

    def __init__(self, transport: asyncio.Transport, peer: tuple[str, int] | None, everybody: set[object]) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LIMIT, loop=loop)
        super().__init__(reader, loop=loop)
        self.client = peer
        self._everybody = everybody
        self._own_transport = transport
        self._carried = Client(reader, asyncio.StreamWriter(transport, self, reader, loop))
        everybody.add(self)
        transport.set_protocol(self)
        self.connection_made(transport)

    async def carry(self, carry: Carry) -> None:
        try:
            await carry(self._carried)
        finally:
            self._own_transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._everybody.discard(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops."""
        self._own_transport.close()


def upgrade_scope(scope: Scope, url: bytes) -> Scope:
    """Return the scope of a request whose connection is to be taken over: the server has not read its address."""
    parsed = httptools.parse_url(url)
    path = (parsed.path or b"/").decode("latin-1")
    return {
        **scope,
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": parsed.query or b"",
    }
