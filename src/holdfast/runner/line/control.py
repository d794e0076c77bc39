"""The control connection: it takes calls from the host, answers them, and dials again for ever when it is cut."""

from __future__ import annotations

import os

from holdfast.errors import ProtocolError
from holdfast.protocol import frames
from holdfast.runner.lean import Callable, sockets
from holdfast.runner.line.dial import Dialer
from holdfast.runner.line.witness import Witness
from holdfast.runner.loop import HANG_UP, READ, WRITE, Loop

Serve = Callable[[frames.Header, bytes, Callable[..., None]], None]

RECEIVE = 1 << 18
RETRY_SECONDS = (0.02, 0.05, 0.1, 0.25, 1.0)
"""The pauses are short, because trying a local socket costs nothing and a daemon that comes back must not wait."""
EAGER_ATTEMPTS = 100
"""How often to dial with the shortest pause after a checkpoint; most attempts happen when the sandbox runs again."""


class Control:
    """Has one connection at a time. ``serve(header, body, reply)`` is called for each call that comes in."""

    def __init__(
        self,
        loop: Loop,
        dialer: Dialer,
        witness: Witness,
        capabilities: list[str],
        running: Callable[[], list[str]],
        serve: Serve,
    ) -> None:
        self._loop = loop
        self._dialer = dialer
        self._witness = witness
        self._capabilities = capabilities
        self._running = running
        self._serve = serve
        self._socket: sockets.socket | None = None
        self._outgoing = bytearray()
        self._is_stuck = False
        self._decoder = frames.Decoder()
        self._failures = 0
        self._eager = 0
        self._resting = False
        self._generation = 0
        self.unanswered = 0
        """Calls on this connection that have not been answered yet, but for those that only wait for something: these
        lose nothing when they are cut, and are asked again."""

    def dial(self) -> None:
        try:
            connection = self._dialer.connect_control(self._capabilities, self._running())
        except OSError:
            self._retry()
            return
        connection.setblocking(False)
        self._socket = connection
        self._generation += 1
        self._decoder = frames.Decoder()
        self._outgoing = bytearray()
        self._is_stuck = self._resting = False
        self.unanswered = 0
        self._loop.watch(connection.fileno(), READ, self._on_ready)

    def rest(self) -> None:
        """Hang up once the last answer is out, and dial again as if nothing had happened."""
        self._resting = True
        if not self._outgoing:
            self._end_rest()

    def _end_rest(self) -> None:
        self._eager = EAGER_ATTEMPTS
        self._hang_up()

    def _retry(self) -> None:
        if self._eager:
            self._eager -= 1
            self._loop.after(RETRY_SECONDS[0], self.dial)
            return
        last = len(RETRY_SECONDS) - 1
        delay = RETRY_SECONDS[min(self._failures, last)]
        self._failures = min(self._failures + 1, last - 1)
        self._loop.after(delay, self.dial)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._retry()
            self._witness.lost()

    def _on_ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._flush()
            if events & (READ | HANG_UP):
                self._receive()
        except (OSError, ProtocolError):
            self._hang_up()

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(RECEIVE)
        except BlockingIOError:
            return
        if not data:
            self._hang_up()
            return
        for header, body in self._decoder.feed(data):
            self._take(header, body)

    def _take(self, header: frames.Header, body: bytes) -> None:
        op = header.get("op")
        if op == "welcome":
            self._failures = self._eager = 0
            session, token = header.get("session"), header.get("token")
            if isinstance(session, str) and isinstance(token, str):
                self._dialer.become(session, token)
            self._witness.arrived(self._ping)
        elif op == "pong":
            self._witness.answered(header.get("number"))
        elif op == "replaced":
            os._exit(0)
        elif op == "refused":  # by a daemon of another version, perhaps; the next one may take us
            self._failures = len(RETRY_SECONDS)
            self._hang_up()
        elif "id" in header:
            counts = 0 if header.get("wait_ms") else 1
            self.unanswered += counts
            self._serve(header, body, self._replier(header["id"], counts))

    def _replier(self, call_id: object, counts: int) -> Callable[..., None]:
        """A function that answers a call, only on the connection that it came from: ids mean nothing on another one."""
        generation = self._generation

        def reply(header: frames.Header, body: bytes = b"") -> None:
            if generation == self._generation and self._socket is not None:
                self.unanswered -= counts
                self._send({**header, "id": call_id}, body)

        return reply

    def _ping(self, number: int) -> None:
        self._send({"op": "ping", "number": number})

    def _send(self, header: frames.Header, body: bytes = b"") -> None:
        self._outgoing += frames.encode(header, body)
        try:
            self._flush()
        except OSError:
            self._hang_up()

    def _flush(self) -> None:
        while self._outgoing and self._socket is not None:
            try:
                sent = self._socket.send(self._outgoing)
            except BlockingIOError:
                self._is_stuck = True
                self._loop.watch(self._socket.fileno(), READ | WRITE, self._on_ready)
                return
            del self._outgoing[:sent]
        if self._is_stuck and self._socket is not None:
            self._is_stuck = False
            self._loop.watch(self._socket.fileno(), READ, self._on_ready)
            if self._resting:
                self._end_rest()
