"""A connection that is no longer the HTTP server's: a WebSocket into a session, whose bytes go through as they are."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

import httptools
from starlette.types import Scope

from holdfast.gateway.proxy.websocket import Client

LIMIT = 64 << 10
"""So much of what a browser sends is read before the other end has taken it."""
LINGER_SECONDS = 2.0
"""So long a client may take to read the last of what was sent to it."""
DEAD_SECONDS = 60, 15, 4
"""When the kernel asks whether a silent client is still there, how often after that, and how many times."""
Carry = Callable[[Client], Awaitable[None]]


class TakenOver(asyncio.StreamReaderProtocol):
    """Stands in the server's list of connections in the place of the protocol that had it before."""

    def __init__(
        self, transport: asyncio.Transport, peer: tuple[str, int] | None, everybody: set[object], rest: bytes = b""
    ) -> None:
        """``rest`` is what came right after the handshake: frames of a client that does not wait for the answer."""
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
        _notice_the_dead(transport)
        if rest:
            self.data_received(rest)

    async def carry(self, carry: Carry) -> None:
        try:
            await carry(self._carried)
        finally:
            self._own_transport.close()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._own_transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._everybody.discard(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops."""
        self._own_transport.close()


def _notice_the_dead(transport: asyncio.Transport) -> None:
    """A WebSocket may be silent for days: have the kernel find out when there is nobody any more."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    for option, value in zip(options, DEAD_SECONDS, strict=True):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


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
