"""Carries a WebSocket: the handshake is read, the frames are passed on as they are.

So subprotocols, pings and close codes are the program's own. What the browser sends before the program has answered
waits in the kernel.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import httptools
from starlette.types import Scope

from holdfast.concurrency import cancel_and_wait, seen
from holdfast.errors import BadAnswer, NoAnswer
from holdfast.gateway.proxy.frames import FrameReader
from holdfast.gateway.proxy.headers import Header, outward
from holdfast.gateway.proxy.http import Errand
from holdfast.gateway.proxy.upstream import Upstream, Upstreams

OPEN_SECONDS = 30.0
LEAVE_SECONDS = 2.0
"""After one side has ended, so long may the other still say something."""
MOST_HEAD = 32 << 10
PIECE = 64 << 10
_UPGRADE: list[Header] = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
_SHAKES_HANDS = frozenset({b"sec-websocket-accept", b"sec-websocket-protocol"})


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
    upstreams: Upstreams, errand: Errand, scope: Scope, client: Client, on_activity: Callable[[], None]
) -> None:
    """Carry frames until either side ends. Raises an error of ours if the program has not answered the handshake.

    ``on_activity`` is called when a person does something.
    """
    upstream = await errand.connect(upstreams, fresh=True)
    try:
        offered = {**scope, "headers": [one for one in scope["headers"] if one[0] != b"sec-websocket-extensions"]}
        upstream.writer.write(errand.head(offered, [], _UPGRADE))
        head = await _read_head(upstream)
        rest = _pass_on(head, client)
        if rest is None:
            await _both_ways(upstream, client, on_activity)
        else:
            await _rest_of_refusal(upstream, client)
    finally:
        upstreams.close(upstream)


async def _read_head(upstream: Upstream) -> bytes:
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            return await upstream.reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise NoAnswer(f"the program at this port did not open the WebSocket within {OPEN_SECONDS:.0f} s") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        raise BadAnswer("the program at this port speaks no WebSocket; look at its output in the sandbox") from None


class _Head:
    def __init__(self) -> None:
        self.headers: list[Header] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


def _pass_on(head: bytes, client: Client) -> bool | None:
    """Send the browser the program's answer; None if that opens the WebSocket, else it refuses."""
    read = _Head()
    parser = httptools.HttpResponseParser(read)
    try:
        if len(head) > MOST_HEAD:
            raise httptools.HttpParserError
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        raise BadAnswer("the program at this port speaks no WebSocket; look at its output in the sandbox") from None
    status = parser.get_status_code()
    headers = outward(read.headers)
    if status == 101:
        client.answer(b"HTTP/1.1 101 Switching Protocols", [*headers, *_UPGRADE])
        return None
    if status < 200:
        raise BadAnswer("the program at this port speaks no WebSocket; look at its output in the sandbox")
    client.answer(f"HTTP/1.1 {status} Refused".encode(), [*headers, (b"connection", b"close")])
    return True


async def _rest_of_refusal(upstream: Upstream, client: Client) -> None:
    """Pass on what the program says with its refusal, for a moment; the end of the connection is its end."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(LEAVE_SECONDS):
            while data := await upstream.reader.read(PIECE):
                client.writer.write(data)
                await client.writer.drain()


async def _both_ways(upstream: Upstream, client: Client, on_activity: Callable[[], None]) -> None:
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
