"""/v1/sessions/{id}/ports: who listens inside, and a tunnel to a port.

The tunnel is a WebSocket. Binary messages are what goes through; the text message ``{"eof": true}``, from either side,
says that this side has sent its last byte. The daemon sends ``{"connected": {…}}`` first, or ``{"error": {…}}``.
"""

import asyncio
import json

from fastapi import WebSocket
from pydantic import BaseModel
from starlette.responses import Response

from holdfast.api.wire.common import SessionId, checked_session_id, reply
from holdfast.api.wire.models import Output
from holdfast.api.wire.routes import IN_SESSION, READ, SESSION, USE, Routes
from holdfast.api.wire.websockets import accepted
from holdfast.concurrency import cancel_and_wait, seen
from holdfast.errors import BadInput
from holdfast.link.link import Stream
from holdfast.sessions.use.ports import Listening, Ports

CHUNK = 1 << 16
MOST_TEXT = 100
EOF = json.dumps({"eof": True})


class PortOut(Output, record=Listening):
    port: int
    address: str
    pid: int | None
    program: str | None


class PortList(BaseModel):
    ports: list[PortOut]


def router(ports: Ports) -> Routes:
    routes = Routes("ports")

    @routes.get(f"{SESSION}/ports", "Who listens inside", scope=READ, returns=PortList, fails=IN_SESSION)
    async def list_ports(session_id: SessionId) -> Response:
        """List the TCP ports that a program in the sandbox listens at."""
        found = await ports.list(session_id)
        return reply(PortList(ports=[PortOut.of(one) for one in found]))

    @routes.websocket(f"{SESSION}/ports/{{port}}/tunnel", scope=USE)
    async def tunnel(socket: WebSocket, session_id: str, port: str) -> None:
        """Open a connection to a TCP port of the sandbox's loopback."""
        async with accepted(socket):
            number = _port(port)
            async with ports.dial(checked_session_id(session_id), number) as stream:
                await socket.send_text(json.dumps({"connected": {"port": number}}))
                await _carry(socket, stream)

    return routes


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536):
        raise BadInput("port: must be a number from 1 to 65535")
    return int(text)


async def _carry(socket: WebSocket, stream: Stream) -> None:
    """Copy both ways, until both have ended or one side is gone."""
    inward = seen(asyncio.ensure_future(_inward(socket, stream)))
    outward = seen(asyncio.ensure_future(_outward(socket, stream)))
    both = [inward, outward]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if inward.done() and not inward.cancelled() and inward.exception() is None and inward.result():
            await asyncio.wait([outward])  # the client has said its last word, not hung up
        elif outward.done() and not inward.done():
            await asyncio.wait([inward])
    finally:
        await cancel_and_wait(*both)
    for task in both:
        if not task.cancelled():
            task.result()


async def _inward(socket: WebSocket, stream: Stream) -> bool:
    """Copy from the client to the port. Return True at an eof, False if the client has closed the connection."""
    writer = stream[1]
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return False
        try:
            if message.get("bytes"):
                writer.write(message["bytes"])
                await writer.drain()
            elif message.get("text"):
                if message["text"] != EOF and json.loads(message["text"][:MOST_TEXT]) != {"eof": True}:
                    raise ValueError("unknown")
                writer.write_eof()
                return True
        except (ValueError, RecursionError):
            raise BadInput('a text message must be {"eof": true}; send data as binary') from None
        except OSError:
            return True  # the port takes no more; what it still says comes the other way


async def _outward(socket: WebSocket, stream: Stream) -> None:
    """Copy from the port to the client."""
    reader = stream[0]
    while True:
        try:
            data = await reader.read(CHUNK)
        except OSError:
            data = b""
        if not data:
            await socket.send_text(EOF)
            return
        await socket.send_bytes(data)
