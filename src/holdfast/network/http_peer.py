"""One end of an HTTP/1.1 connection: h11 does the protocol, a stream does the bytes, back-pressure is the stream's."""

import asyncio
from collections.abc import Iterable

import h11

from holdfast.network.headers import HOP_BY_HOP, connection_options

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Headers = list[tuple[bytes, bytes]]

CHUNK = 1 << 16
MAX_HEAD = 64 << 10


class HttpPeer:
    """Our end of a connection. ``role`` is what we are on it: ``h11.SERVER`` or ``h11.CLIENT``."""

    def __init__(self, role: type[h11.CLIENT | h11.SERVER], stream: Stream) -> None:
        self.protocol = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self.reader, self.writer = stream

    async def next_event(self) -> h11.Event:
        """Wait for the next event of the other end.

        Raises ``h11.RemoteProtocolError`` for what is no HTTP, and OSError when the connection breaks.
        """
        while (event := self.protocol.next_event()) is h11.NEED_DATA:
            self.protocol.receive_data(await self.reader.read(CHUNK))
        if isinstance(event, h11.Event):
            return event
        raise h11.RemoteProtocolError("more was sent than there was to say")  # paused: it is our turn

    async def send(self, event: h11.Event) -> None:
        data = self.protocol.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def wait_for_end(self) -> bool:
        """Wait until the other end says something or hangs up, between its messages. Return True if it has hung up."""
        data = await self.reader.read(CHUNK)
        self.protocol.receive_data(data)
        return not data


def end_to_end(headers: Headers) -> Headers:
    """Return the headers without those that concern one connection alone: the standard ones, and those that
    ``Connection`` names."""
    left_out = HOP_BY_HOP | connection_options(headers)
    return [(name, value) for name, value in headers if name not in left_out]


def pairs(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers as plain data, with names in lower case."""
    return [(bytes(name), bytes(value)) for name, value in headers]
