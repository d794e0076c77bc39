"""Has the HTTP server send the head of a reply and its body in one piece.

By itself it writes them one after the other: two packets, and a client that is woken twice. Here the head waits for
what is written next, at the longest until the event loop comes round again.
"""

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = b"HTTP/1.1 "
_SMALL = 1 << 16


class WholeReplies(HttpToolsProtocol):
    """The server's own protocol, on a transport that joins head and body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(cast(asyncio.Transport, Joining(transport)))


class Joining:
    """A transport that joins head and body, and leaves all else to the real one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._call_soon = asyncio.get_running_loop().call_soon
        self._head = b""

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self._head and data.startswith(_HEAD):
            self._head = data
            self._call_soon(self._flush)
        elif self._head and len(data) <= _SMALL:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:  # a copy of something large costs more than a second packet
            self._flush()
            self._transport.write(data)

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def abort(self) -> None:
        self._head = b""
        self._transport.abort()

    def close(self) -> None:
        self._flush()
        self._transport.close()


def inner(transport: asyncio.Transport) -> asyncio.Transport:
    """Return the real transport, for bytes that are no replies."""
    if isinstance(transport, Joining):
        transport._flush()
        return transport._transport
    return transport
