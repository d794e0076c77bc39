"""A terminal in a session: bytes both ways, a size, and an end."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from holdfast.errors import Unavailable
from holdfast.sdk.connection.transport import Transport, told_of_wire
from holdfast.sdk.sessions.processes import ProcessInfo
from holdfast.sdk.sessions.results import of_wire


class Terminal:
    """One attachment to a terminal. When it is gone the program goes on; attach again by ``process_id``."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, attached: dict[str, Any]) -> None:
        self._socket = socket
        self.process_id = str(attached["process_id"])
        self.offset = int(attached["offset"])
        """The position after what was read so far: where another attachment goes on."""
        self.ended: ProcessInfo | None = None
        """How the program ended, once it has."""

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield what appears on the screen, until the program ends. Raises ``Unavailable`` if the connection breaks."""
        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                self.offset += len(message.data)
                yield message.data
            elif message.type is aiohttp.WSMsgType.TEXT:
                told = told_of_wire(message.data)
                self.offset += int(told.get("dropped", 0))
                if "exit" in told:
                    self.ended = of_wire(ProcessInfo, told["exit"])
                    return
            else:
                raise Unavailable("the connection to the terminal broke; attach to it again by its process_id")

    async def write(self, data: bytes) -> None:
        """Write bytes as if they were typed."""
        await self._send(self._socket.send_bytes(data))

    async def resize(self, rows: int, columns: int) -> None:
        await self._send(self._socket.send_str(json.dumps({"resize": {"rows": rows, "columns": columns}})))

    async def _send(self, sending: Awaitable[None]) -> None:
        try:
            await sending
        except (aiohttp.ClientError, ConnectionError):
            raise Unavailable("the connection to the terminal broke; attach to it again by its process_id") from None


@asynccontextmanager
async def open_terminal(transport: Transport, path: str, params: dict[str, str]) -> AsyncIterator[Terminal]:
    async with transport.websocket(path, params) as socket:
        first = await socket.receive()
        if first.type is not aiohttp.WSMsgType.TEXT:
            raise Unavailable("the daemon closed the terminal before it was open; see its log")
        yield Terminal(socket, told_of_wire(first.data)["attached"])
