"""Ports inside a session: who listens, and local ports that lead to them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from holdfast.errors import HoldfastError, Unavailable
from holdfast.sdk.connection.transport import Transport, told_of_wire
from holdfast.sdk.sessions.results import of_wire

CHUNK = 1 << 16
CHECK_SECONDS = 10.0
EOF = json.dumps({"eof": True})


@dataclass(frozen=True, slots=True)
class Listening:
    """A TCP port that something inside listens at."""

    port: int
    address: str
    pid: int | None
    program: str | None


@dataclass(frozen=True, slots=True)
class Forward:
    """A local address that leads to a port inside, for as long as its block lasts."""

    host: str
    port: int


class Ports:
    """The ports of one session."""

    def __init__(self, transport: Transport, session_path: str) -> None:
        self._transport = transport
        self._path = session_path + "/ports"

    async def list(self) -> list[Listening]:
        data = await self._transport.call("GET", self._path)
        return [of_wire(Listening, one) for one in data["ports"]]

    @asynccontextmanager
    async def forward(self, port: int, *, local_port: int = 0, host: str = "127.0.0.1") -> AsyncIterator[Forward]:
        """Listen here and lead every connection to ``port`` inside; 0 takes any free port.

        Nothing has to listen inside yet: a connection that finds nobody is closed. It outlives restarts of the daemon.
        """
        running: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            running.add(task)
            try:
                with contextlib.suppress(HoldfastError, OSError):
                    await self._lead(reader, writer, port)
            finally:
                running.discard(task)
                writer.close()

        server = await asyncio.start_server(serve, host, local_port)
        try:
            await self._check_tunnels()
            address = server.sockets[0].getsockname()
            yield Forward(address[0], address[1])
        finally:
            server.close()
            for task in list(running):
                task.cancel()
            if running:
                await asyncio.wait(running)

    async def _check_tunnels(self) -> None:
        """Raise what stands in the way of all tunnels, such as a proxy that passes no WebSockets on.

        Asked for port 0, the daemon opens a tunnel only to say that there is no such port: nobody inside notices.
        """
        async with self._transport.websocket(f"{self._path}/0/tunnel") as socket:
            await socket.receive(timeout=CHECK_SECONDS)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        async with self._transport.websocket(f"{self._path}/{port}/tunnel") as socket:
            first = await socket.receive()
            if first.type is not aiohttp.WSMsgType.TEXT:
                raise Unavailable("the daemon closed the tunnel before it was open; see its log")
            told_of_wire(first.data)
            inward = asyncio.ensure_future(_inward(reader, socket))
            try:
                await _outward(socket, writer)
                if not inward.done() and not socket.closed:
                    await asyncio.wait([inward])  # the port has said its last word; ours may still be coming
            finally:
                inward.cancel()
                await asyncio.wait([inward])


async def _inward(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            await socket.send_bytes(data)
        await socket.send_str(EOF)


async def _outward(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            writer.write(message.data)
            await writer.drain()
        elif message.type is aiohttp.WSMsgType.TEXT:
            if writer.can_write_eof():
                writer.write_eof()
            return
