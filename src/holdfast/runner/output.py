"""The output of a command or process: it is kept in a ring and passed on to its followers.

A follower that is slower than the program slows the program down, as a pipe would: nothing that it has not seen is
dropped while it reads on. A follower that has stopped reading holds the program up only for a short time.

A follower is a connection to the host that gets everything from a position on, then the end. We send ``{"offset",
"stream"}`` + bytes, with ``dropped`` if older bytes were gone before they could be sent, and at last ``{"end": …}``. If
the program takes input, the host sends ``{}`` + bytes, ``{"eof": true}`` and ``{"resize": [rows, columns]}``.
"""

from __future__ import annotations

from holdfast.errors import ProtocolError
from holdfast.protocol import frames
from holdfast.runner.lean import Callable, sockets
from holdfast.runner.loop import READ, WRITE, Loop
from holdfast.runner.ring import Ring

CHUNK = 1 << 18
STALLED_SECONDS = 30.0
TakeInput = Callable[[frames.Header, bytes, Callable[[], None]], bool]
"""``take(header, body, on_room)`` returns False if no more input may be given before ``on_room`` is called."""


class ProgramOutput:
    """One program's output, its followers, and the last frame that they get."""

    def __init__(self, limit: int) -> None:
        self.ring = Ring(limit)
        self.end: frames.Header | None = None
        self._feeds: list[OutputFeed] = []
        self._on_room: Callable[[], None] | None = None
        self._kept_from: int | None = None

    def add(self, stream: int, data: bytes) -> None:
        self.ring.append(stream, data)
        self._tell()

    def finish(self, end: frames.Header) -> None:
        """Note that no more output will come; followers get ``end`` after the last byte."""
        if self.end is None:
            self.end = end
            self._tell()

    def _tell(self) -> None:
        for feed in list(self._feeds):
            feed.send()

    def expect_follower(self, loop: Loop) -> None:
        """Keep all output for a follower that will come soon, but no longer than for one that reads nothing."""
        self._kept_from = self.ring.start
        loop.after(STALLED_SECONDS, self._expect_nobody)

    def _expect_nobody(self) -> None:
        self._kept_from = None
        self.progress()

    def attach(self, feed: OutputFeed) -> None:
        self._feeds.append(feed)
        if self._on_room is not None:
            feed.expect_progress()
        self._expect_nobody()

    def detach(self, feed: OutputFeed) -> None:
        if feed in self._feeds:
            self._feeds.remove(feed)
        self.progress()

    # -- back-pressure -----------------------------------------------------------------------------------------------

    def is_ahead(self) -> bool:
        """Say whether reading more would soon drop bytes that a follower has not seen."""
        return self._lead() > self.ring.limit // 2

    def _lead(self) -> int:
        read_up_to = [feed.position for feed in self._feeds if feed.holds]
        if self._kept_from is not None:
            read_up_to.append(self._kept_from)
        return self.ring.written - min(read_up_to, default=self.ring.written)

    @property
    def waiting(self) -> bool:
        """Whether the program has to wait for its followers."""
        return self._on_room is not None

    def wait_for_room(self, on_room: Callable[[], None]) -> None:
        """Call back, once, when the followers have caught up."""
        self._on_room = on_room
        for feed in self._feeds:
            feed.expect_progress()

    def progress(self) -> None:
        """Note that a follower has read more, or is gone."""
        if self._on_room is not None and self._lead() <= self.ring.limit // 4:
            on_room, self._on_room = self._on_room, None
            on_room()


class OutputFeed:
    """Sends output as fast as the host reads it; only the kernel's buffers are in between."""

    def __init__(
        self,
        loop: Loop,
        connection: sockets.socket,
        output: ProgramOutput,
        position: int,
        take: TakeInput | None = None,
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
