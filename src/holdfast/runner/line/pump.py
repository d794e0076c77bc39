"""Copies bytes between two connected sockets, both ways, in the runner's loop and without blocking it.

At most ``BUFFER`` bytes wait in each direction: if one side does not read, the other side is not read either. The end
of one direction is passed on, and the other direction goes on; when both have ended, both sockets are closed. Bytes for
a side that takes no more are read and dropped for a moment, because closing a socket with unread bytes would reset the
connection, and the last bytes of that side would be lost.

The end of the second socket counts only if it is confirmed (``ask``). Otherwise, or if the pump is closed early, the
first socket is reset, so that no program mistakes it for a proper end.
"""

from __future__ import annotations

import sys

from holdfast.runner.lean import Callable, sockets
from holdfast.runner.line.witness import Ask
from holdfast.runner.loop import HANG_UP, READ, WRITE, Loop, Timer

BUFFER = 1 << 16
LINGER_SECONDS = 2.0
_RESET_ON_CLOSE = (1).to_bytes(4, sys.byteorder) + bytes(4)


class _Flow:
    """One direction of a pump."""

    def __init__(self, source: sockets.socket, target: sockets.socket) -> None:
        self.source = source
        self.target = target
        self.waiting = bytearray()
        self.source_ended = False
        self.end_is_confirmed = True
        self.broken = False
        self.done = False

    def wants_to_read(self) -> bool:
        return not self.done and not self.source_ended and len(self.waiting) < BUFFER

    def wants_to_write(self) -> bool:
        return not self.done and len(self.waiting) > 0

    def read(self) -> None:
        try:
            data = self.source.recv(BUFFER - len(self.waiting))
        except BlockingIOError:
            return
        except OSError:  # a reset: there is no more to come
            data = b""
        if not data:
            self.source_ended = True
        elif not self.broken:
            self.waiting += data
        self.write()  # most often the other side takes it at once

    def write(self) -> None:
        try:
            while self.waiting:
                del self.waiting[: self.target.send(self.waiting)]
        except BlockingIOError:
            return
        except OSError:  # nobody there to take it
            self.waiting.clear()
            self.broken = True
        if self.source_ended and self.end_is_confirmed:
            self._pass_end_on()

    def _pass_end_on(self) -> None:
        self.done = True
        try:
            self.target.shutdown(sockets.SHUT_WR)
        except OSError:
            return


def _send_at_once(socket: sockets.socket) -> None:
    """Switch Nagle's algorithm off: a second small piece would wait up to 40 ms for the acknowledgement of the
    first."""
    if socket.family != sockets.AF_UNIX:
        socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)


class Pump:
    """Takes over both sockets, and closes them when it is done; then ``on_end`` is called."""

    def __init__(
        self,
        loop: Loop,
        inside: sockets.socket,
        home: sockets.socket,
        on_end: Callable[[], None],
        ask: Ask | None = None,
    ) -> None:
        self._loop = loop
        self._on_end = on_end
        self._ask = ask
        self._flows = (_Flow(inside, home), _Flow(home, inside))
        self._flows[1].end_is_confirmed = ask is None
        self._linger: Timer | None = None
        self.closed = False
        for flow in self._flows:
            flow.source.setblocking(False)
            _send_at_once(flow.source)
        self._watch()

    def _on_ready(self, ready: sockets.socket, events: int) -> None:
        for flow in self._flows:
            if flow.target is ready and events & (WRITE | HANG_UP) and flow.wants_to_write():
                flow.write()
            if flow.source is ready and events & (READ | HANG_UP) and flow.wants_to_read():
                flow.read()
        if self._flows[1].source_ended and self._ask is not None:
            ask, self._ask = self._ask, None
            ask(self._learn)
        if not self.closed:
            self._go_on()

    def _learn(self, alive: bool) -> None:
        """Handle the end of the host's side; ``alive`` says whether the daemon meant it."""
        if self.closed:
            return
        if not alive:
            self.close()
            return
        inward = self._flows[1]
        inward.end_is_confirmed = True
        inward.write()
        self._go_on()

    def _go_on(self) -> None:
        if all(flow.done for flow in self._flows):
            self.close()
            return
        if self._linger is None and all(flow.done or flow.broken for flow in self._flows):
            self._linger = self._loop.after(LINGER_SECONDS, self.close)
        self._watch()

    def _watch(self) -> None:
        """Watch each socket only for what is needed now. If that is nothing, it is not watched at all, or a hang-up
        would wake us again and again."""
        outward, inward = self._flows
        for flow, back in ((outward, inward), (inward, outward)):
            ready = flow.source
            events = (READ if flow.wants_to_read() else 0) | (WRITE if back.wants_to_write() else 0)
            if events:
                self._loop.watch(ready.fileno(), events, self._handler(ready))
            else:
                self._loop.unwatch(ready.fileno())

    def _handler(self, ready: sockets.socket) -> Callable[[int], None]:
        return lambda events: self._on_ready(ready, events)

    def close(self) -> None:
        self.closed = True
        if self._linger is not None:
            self._linger.cancel()
        for flow in self._flows:
            self._loop.unwatch(flow.target.fileno())
            if flow.done:
                close(flow.target)
            else:
                _reset(flow.target)
        self._on_end()


def _reset(connection: sockets.socket) -> None:
    """Close a socket by a reset, if its kind has one; the other end sees that as an error, and not as the end."""
    if connection.family == sockets.AF_UNIX:
        close(connection)
        return
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, _RESET_ON_CLOSE)
    connection.close()


def close(connection: sockets.socket) -> None:
    """Shut down and close a socket; without the shutdown it would stay open in a forked child that has it too."""
    try:
        connection.shutdown(sockets.SHUT_RDWR)
    except OSError:
        pass  # the other side was faster
    connection.close()
