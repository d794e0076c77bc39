"""A WebSocket that ends here, on a connection that was taken over from the HTTP server."""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator

from starlette.types import Scope
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from holdfast.concurrency import cancel_and_wait, every
from holdfast.errors import BadRequest, HoldfastError
from holdfast.gateway.proxy.websocket import Client

MOST_MESSAGE = 4 << 20
"""What a person pastes goes in one message."""
PIECE = 64 << 10
PING_SECONDS = 15.0
SILENT_SECONDS = 60.0
"""A browser that says nothing for so long, not even that it is there, is gone."""
CLOSE_SECONDS = 2.0
NORMAL, GOING_AWAY, BAD_DATA, PROBLEM = 1000, 1001, 1007, 1011
_ALIVE = json.dumps({"alive": True})


class OwnSocket:
    """Use ``opened()``, which answers the handshake."""

    def __init__(self, client: Client, protocol: ServerProtocol) -> None:
        self._client = client
        self._protocol = protocol
        self._frames: deque[Frame] = deque()
        self._parts = bytearray()
        self._kind = Opcode.BINARY
        self._heard_at = asyncio.get_running_loop().time()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, client: Client, scope: Scope, *, tells_alive: bool) -> AsyncIterator["OwnSocket"]:
        """Open it. An error of ours is told as a message, as pages see nothing else of it, and closes the socket.

        ``tells_alive``: say so each ``PING_SECONDS``, in words, as pages do not see pings. Raises ``BadRequest``.
        """
        socket = cls(client, _shake_hands(client, scope))
        living = asyncio.create_task(
            every(PING_SECONDS, lambda: socket._look_alive(tells_alive), on_failure="gateway.socket.failed")
        )
        code = NORMAL
        try:
            yield socket
        except HoldfastError as error:
            code = PROBLEM
            with contextlib.suppress(OSError):
                await socket.send_text(json.dumps({"error": {"code": error.code, "message": error.message}}))
        except OSError:  # the browser is gone
            pass
        finally:
            await cancel_and_wait(living)
            socket.end(code)
            await socket._leave()

    async def receive(self) -> bytes | str | None:
        """Return the next message; None at the end."""
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame.opcode is Opcode.CLOSE:
                    return None
                if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT) and (done := self._add(frame)):
                    try:
                        return done[0] if self._kind is Opcode.BINARY else done[0].decode()
                    except UnicodeDecodeError:
                        self.end(BAD_DATA)
            if not await self._read():
                return None

    def _add(self, frame: Frame) -> tuple[bytes] | None:
        """Put the parts of a message together; it is returned when it is whole."""
        if frame.opcode is not Opcode.CONT:
            self._kind = frame.opcode
        self._parts += frame.data
        if not frame.fin:
            return None
        whole = bytes(self._parts)
        self._parts.clear()
        return (whole,)

    async def _read(self) -> bool:
        if self._protocol.state is not State.OPEN:
            return False
        try:
            data = await self._client.reader.read(PIECE)
        except OSError:
            return False
        self._heard_at = asyncio.get_running_loop().time()
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._frames.extend(event for event in self._protocol.events_received() if isinstance(event, Frame))
        with contextlib.suppress(OSError):
            await self._flush()
        return bool(data) or bool(self._frames)

    async def send_bytes(self, data: bytes) -> None:
        """Returns when the browser's side has room for more."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            await self._flush()

    async def send_text(self, text: str) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_text(text.encode())
            await self._flush()

    def end(self, code: int = GOING_AWAY) -> None:
        """Close it. Whoever waits in ``receive`` is told soon, as the browser answers or is hung up on."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code)
            self._write()
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._client.writer.close)

    async def _look_alive(self, tells: bool) -> None:
        if asyncio.get_running_loop().time() - self._heard_at > SILENT_SECONDS:
            self._client.writer.transport.abort()
        elif self._protocol.state is State.OPEN and not self._client.writer.transport.get_write_buffer_size():
            self._protocol.send_ping(b"")
            if tells:
                self._protocol.send_text(_ALIVE.encode())
            self._write()

    async def _leave(self) -> None:
        """Wait a moment for the browser's own last word: to hang up at once could take ours with it."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._flush()
                while not self._client.reader.at_eof() and self._protocol.close_rcvd is None:
                    await self._read_rest()

    async def _read_rest(self) -> None:
        data = await self._client.reader.read(PIECE)
        if data:
            self._protocol.receive_data(data)
            self._protocol.events_received()

    def _write(self) -> None:
        for data in self._protocol.data_to_send():
            if data:  # an empty one means that we have nothing more to say
                self._client.writer.write(data)

    async def _flush(self) -> None:
        self._write()
        await self._client.writer.drain()


def _shake_hands(client: Client, scope: Scope) -> ServerProtocol:
    protocol = ServerProtocol(max_size=MOST_MESSAGE)
    path = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    lines = [b"GET " + path + b" HTTP/1.1", *(name + b": " + value for name, value in scope["headers"])]
    protocol.receive_data(b"\r\n".join(lines) + b"\r\n\r\n")
    asked = protocol.events_received()
    if not asked or not isinstance(asked[0], Request):
        raise BadRequest("this is no handshake of a WebSocket")
    response = protocol.accept(asked[0])
    if response.status_code != 101:
        raise BadRequest("this is no handshake of a WebSocket")
    protocol.send_response(response)
    client.answered = True
    for data in protocol.data_to_send():
        client.writer.write(data)
    return protocol
