"""One accepted connection: it decodes frames and finds out from the first one what the caller is.

Nothing here trusts the other end. The runner lives in a sandbox, and so may any program that pretends to be the
runner. Therefore the first frame must come soon, be small, and carry the session's token.
"""

import asyncio
import hmac
from collections.abc import Callable
from typing import Protocol, cast

from holdfast.errors import ProtocolError
from holdfast.protocol import frames
from holdfast.protocol.messages import VERSION

HELLO_SECONDS = 5.0
HELLO_BYTES = 64 << 10
STREAM_BUFFER = 1 << 20
LISTENED_BUFFER = 1 << 16
"""Programs in a sandbox may open many such streams without being asked, so each of them gets a smaller buffer."""
FRAMES_AT_ONCE = 500


class Peer(Protocol):
    """The receiver of what a connection learns from its caller: in practice the ``Link`` of the session."""

    def token_matches(self, token: str) -> bool: ...
    def new_identity(self, token: str) -> frames.Header: ...
    def runner_arrived(self, connection: "Connection", hello: frames.Header) -> None: ...
    def runner_said(self, connection: "Connection", header: frames.Header, body: bytes) -> None: ...
    def runner_left(self, connection: "Connection") -> None: ...
    def buffer_of(self, stream: str) -> int: ...
    def stream_arrived(self, stream: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...
    def caller_arrived(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...
    def protocol_for(self, name: str) -> Callable[[], asyncio.Protocol | None] | None: ...


class Register(Protocol):
    """Counts the connections of one session."""

    def let_stream(self, connection: "Connection", /, *, called: bool) -> bool:
        """Say whether one more stream is allowed. ``called`` means that a program in the sandbox has opened it."""

    def forget(self, connection: "Connection", /) -> None: ...


class Connection(asyncio.Protocol):
    """A runner's control connection, or a stream; the bytes of a stream are passed on to another protocol."""

    def __init__(self, peer: Peer, register: Register, *, refused: bool = False) -> None:
        self._peer = peer
        self._refused = refused
        self._register = register
        self._decoder = frames.Decoder()
        self._is_runner = False
        self._is_stream = False
        self._is_paused = False
        self._inner: asyncio.Protocol | None = None
        """It receives all bytes of a stream. It stays behind this object, which counts the stream until it ends."""
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
        if self._refused:  # there are too many already
            transport.close()
            return
        self._hello_timer = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.close)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.data_received(data)
        elif not self._is_stream:
            self._decode(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def _decode(self, data: bytes) -> None:
        self._decoder.add(data)
        self._take_frames()

    def _take_frames(self) -> None:
        """Handle a limited number of frames, let other tasks run, handle the rest, and only then read more bytes."""
        assert self._transport is not None
        try:
            for _ in range(FRAMES_AT_ONCE):
                # One at a time: what follows a stream's first frame are not frames.
                if self._is_stream or self._transport.is_closing() or (frame := self._decoder.next()) is None:
                    self._go_on_reading()
                    break
                self._take(*frame)
            else:
                if not self._is_paused:
                    self._is_paused = True
                    self._transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._take_frames)
        except ProtocolError:
            self.close()
        if not self._is_runner and self._decoder.waiting > HELLO_BYTES:
            self.close()

    def _go_on_reading(self) -> None:
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _take(self, header: frames.Header, body: bytes) -> None:
        if self._is_runner:
            self._peer.runner_said(self, header, body)
            return
        problem = self._hello_problem(header)
        if problem:
            self.send({"op": "refused", "message": problem})
            self.close()
        elif header["op"] == "hello":
            self._stop_hello_timer()
            self._is_runner = True
            self.send({"op": "welcome", "v": VERSION, **self._peer.new_identity(str(header["token"]))})
            self._peer.runner_arrived(self, header)
        else:
            self._stop_hello_timer()
            self._become_stream(header)

    def _hello_problem(self, header: frames.Header) -> str | None:
        token = header.get("token")
        if not isinstance(token, str) or not self._peer.token_matches(token):
            return "wrong token"
        if header.get("v") != VERSION:
            return f"this host speaks version {VERSION} of the protocol"
        if header.get("op") not in ("hello", "stream"):
            return "the first frame must be hello or stream"
        return None

    def _stop_hello_timer(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()

    def _become_stream(self, header: frames.Header) -> None:
        """Hand the connection over to asyncio's own reader and writer: from here on its bytes are not our frames."""
        assert self._transport is not None
        self._is_stream = True
        name = header.get("listen")
        if not self._register.let_stream(self, called=name is not None):
            self._transport.abort()
            return
        if name is not None and (make := self._peer.protocol_for(str(name))) is not None:
            self._become(make())
            return
        loop = asyncio.get_running_loop()
        limit = self._peer.buffer_of(str(header.get("stream"))) if name is None else LISTENED_BUFFER
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        self._become(protocol)
        writer = asyncio.StreamWriter(self._transport, protocol, reader, loop)
        if name is None:
            self._peer.stream_arrived(str(header.get("stream")), reader, writer)
        else:
            self._peer.caller_arrived(str(name), reader, writer)

    def _become(self, protocol: asyncio.Protocol | None) -> None:
        """Give the connection to another protocol, with the bytes that are here already; hang up if there is none."""
        assert self._transport is not None
        if protocol is None:
            self._transport.abort()
            return
        self._inner = protocol
        protocol.connection_made(self._transport)
        if rest := self._decoder.rest():
            protocol.data_received(rest)

    def send(self, header: frames.Header, body: bytes = b"") -> None:
        """Send a frame, without waiting; it is dropped if the connection is closing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames.encode(header, body))

    def send_if_read(self, header: frames.Header) -> None:
        """Send an answer, or hang up on a peer that keeps asking and does not read the answers that it has got."""
        if self._transport is not None and self._transport.get_write_buffer_size() > STREAM_BUFFER:
            self._transport.abort()
        self.send(header)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_hello_timer()
        self._register.forget(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)
        if self._is_runner:
            self._peer.runner_left(self)


def same_token(expected: str, offered: str) -> bool:
    """Compare two tokens in a time that does not depend on where they differ."""
    return hmac.compare_digest(expected.encode(), offered.encode("utf-8", "replace"))
