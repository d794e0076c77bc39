"""One follower of an output: a connection to the host that gets everything from a position on, then the end.

It sends ``{"offset", "stream"}`` + bytes to the host, with ``dropped`` if older bytes were gone before they could be
sent, and at last ``{"end": …}``. If the program takes input, the host sends ``{}`` + bytes, ``{"eof": true}`` and
``{"resize": [rows, columns]}``.
"""

from __future__ import annotations

from holdfast.errors import ProtocolError
from holdfast.protocol import frames
from holdfast.runner.loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runner.lean import sockets
    from holdfast.runner.loop import Loop
    from holdfast.runner.output import Output

    TakeInput = Callable[[frames.Header, bytes, Callable[[], None]], bool]
    """``take(header, body, on_room)`` returns False if no more input may be given before ``on_room`` is called."""

CHUNK = 1 << 18
STALLED_SECONDS = 30.0


class Feed:
    """Sends output as fast as the host reads it; only the kernel's buffers are in between."""

    def __init__(
        self, loop: Loop, connection: sockets.socket, output: Output, position: int, take: TakeInput | None = None
    ) -> None:
        self._loop = loop
        self._socket: sockets.socket | None = connection
        self._output = output
        self._cursor = output.ring.cursor(position)
        self._take = take
        self._decoder = frames.Decoder()
        self._listening = True
        self._pending = memoryview(b"")
        self._told_end = False
        self._watched = False
        self.holds = True
        """Whether the program waits for this follower."""
        connection.setblocking(False)
        output.attach(self)
        self._watch(False)
        self.send()

    @property
    def closed(self) -> bool:
        return self._socket is None

    @property
    def position(self) -> int:
        return self._cursor.position

    def send(self) -> None:
        """Send as much as the connection takes now."""
        while self._socket is not None and (self._pending or self._prepare()):
            try:
                sent = self._socket.send(self._pending)
            except BlockingIOError:
                self._watch(True)
                return
            except OSError:
                self.close()
                return
            self._pending = self._pending[sent:]
            self.holds = True
        if self._socket is not None:
            self._watch(False)

    def _prepare(self) -> bool:
        """Prepare the next frame; False if there is none."""
        before = self._cursor.position
        stream, data = self._output.ring.read(self._cursor, CHUNK)
        if data:
            offset = self._cursor.position - len(data)
            header: frames.Header = {"offset": offset, "stream": stream}
            if offset > before:
                header["dropped"] = offset - before
            self._pending = memoryview(frames.encode(header, data))
            self._output.progress()
            return True
        if self._output.end is not None and not self._told_end:
            self._told_end = True
            self._pending = memoryview(frames.encode({"end": self._output.end}))
            return True
        return False

    def expect_progress(self) -> None:
        """Note that the program waits for this follower from now on. It stops waiting if nothing moves for long."""
        if self._watched:
            return
        self._watched = True
        position = self._cursor.position

        def look() -> None:
            self._watched = False
            if self._socket is None or not self._output.waiting:
                return
            if self._cursor.position == position:
                self.holds = False
                self._output.progress()
            else:
                self.expect_progress()

        self._loop.after(STALLED_SECONDS, look)

    # -- the connection ----------------------------------------------------------------------------------------------

    def _watch(self, writing: bool) -> None:
        if self._socket is not None:
            events = (READ if self._listening else 0) | (WRITE if writing else 0)
            self._loop.watch(self._socket.fileno(), events, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self.send()
        if events & ~WRITE:
            self._receive()

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(CHUNK)
            if not data:
                self.close()
                return
            self._decoder.add(data)
            self._deliver()
        except BlockingIOError:
            return
        except (OSError, ProtocolError, TypeError):
            self.close()

    def _deliver(self) -> None:
        """Pass received input on to the program, until it takes no more for now."""
        while (frame := self._decoder.next()) is not None:
            if self._take is not None and not self._take(*frame, self._listen_again):
                self._listening = False
                self._watch(bool(self._pending))
                return

    def _listen_again(self) -> None:
        if not self._listening and self._socket is not None:
            self._listening = True
            self._watch(bool(self._pending))
            try:
                self._deliver()
            except (ProtocolError, TypeError):
                self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._output.detach(self)
