"""Carries a WebSocket: the handshake is read, the frames are passed on as they are.

So subprotocols, pings and close codes are the program's own. What the browser sends before the program has answered
waits in the kernel.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from holdfast.concurrency import cancel_and_wait, seen
from holdfast.errors import InvalidAnswer, NoAnswer
from holdfast.gateway.proxy.answer import ServerAnswer
from holdfast.gateway.proxy.frames import FrameReader
from holdfast.gateway.proxy.headers import Header, outward
from holdfast.gateway.proxy.http import ProxiedRequest
from holdfast.gateway.proxy.upstream import PortConnection, PortConnections

OPEN_SECONDS = 30.0
LEAVE_SECONDS = 2.0
"""After one side has ended, so long may the other still say something."""
MOST_REFUSAL = 64 << 10
PIECE = 64 << 10
_UPGRADE: list[Header] = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]


@dataclass(slots=True)
class Client:
    """A browser's connection, taken over from the HTTP server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answered: bool = False
    """The head of an answer is out."""

    def answer(self, status_line: bytes, headers: list[Header], body: bytes = b"") -> None:
        lines = [status_line, *(name + b": " + value for name, value in headers)]
        self.writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.answered = True


async def carry(
    upstreams: PortConnections, errand: ProxiedRequest, scope: Scope, client: Client, on_activity: Callable[[], None]
) -> None:
    """Carry frames until either side ends. Raises an error of ours if the program has not answered the handshake.

    ``on_activity`` is called when a person does something.
    """
    upstream = await errand.connect(upstreams, fresh=True)
    upstream.hang_up = client.writer.transport.abort
    try:
        offered = {**scope, "headers": [one for one in scope["headers"] if one[0] != b"sec-websocket-extensions"]}
        upstream.writer.write(errand.head(offered, [], _UPGRADE))
        answer = ServerAnswer(upstream.reader, upgrades=True)
        await answer.read_head(OPEN_SECONDS)
        headers = outward(answer.headers)
        if answer.rest is not None:
            client.answer(b"HTTP/1.1 101 Switching Protocols", [*headers, *_UPGRADE], answer.rest)
            del answer, headers, offered  # what follows may last for days
            await _both_ways(upstream, client, on_activity)
        else:
            await _refuse(answer, headers, client)
    finally:
        upstreams.close(upstream)


async def _refuse(answer: ServerAnswer, headers: list[Header], client: Client) -> None:
    """Pass on what the program says instead of opening the WebSocket."""
    body = bytearray()
    try:
        async with asyncio.timeout(LEAVE_SECONDS):
            while (piece := await answer.next_piece()) is not None and len(body) <= MOST_REFUSAL:
                body += piece
    except TimeoutError:
        raise NoAnswer("the program at this port refused the WebSocket, and did not come to an end") from None
    if len(body) > MOST_REFUSAL:
        raise InvalidAnswer("the program at this port refused the WebSocket in too many words")
    framing = [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    client.answer(f"HTTP/1.1 {answer.status} Refused".encode(), [*headers, *framing], bytes(body))


async def _both_ways(upstream: PortConnection, client: Client, on_activity: Callable[[], None]) -> None:
    frames = FrameReader()

    def look(data: bytes) -> None:
        if frames.feed(data):
            on_activity()

    inward = seen(asyncio.ensure_future(_copy(client.reader, upstream.writer, look)))
    outward_ = seen(asyncio.ensure_future(_copy(upstream.reader, client.writer, None)))
    try:
        await asyncio.wait([inward, outward_], return_when=asyncio.FIRST_COMPLETED)
        if not upstream.closed:  # by us, who may not let them go on
            await asyncio.wait([inward, outward_], timeout=LEAVE_SECONDS)
    finally:
        await cancel_and_wait(inward, outward_)


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Callable[[bytes], None] | None
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(PIECE):
            if look is not None:
                look(data)
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
