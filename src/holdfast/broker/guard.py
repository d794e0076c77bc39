"""Limits how long a program in a sandbox may take to send a request, and to read the answer.

The server itself waits very long: for the head of a request, for more of a body, for somebody who does not read what is
sent. Here each connection has one clock, which is set anew when it is somebody else's turn.
"""

import asyncio
from dataclasses import dataclass
from typing import cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler


@dataclass(frozen=True, slots=True)
class Deadlines:
    head_seconds: float = 15.0
    """From the first byte of a request to the end of its headers; and for the first request of a connection."""
    body_seconds: float = 60.0
    """Without a byte of a body that is not complete."""
    idle_seconds: float = 90.0
    """Between two requests. Longer than most programs keep a connection, so that they are the ones to close it."""
    unread_seconds: float = 300.0
    """In which nothing is taken of what was sent."""


class GuardedHandler(RequestHandler):
    """The server's own protocol; it hangs up on a client that takes too long."""

    def __init__(self, server: web.Server, deadlines: Deadlines) -> None:
        loop = asyncio.get_running_loop()
        # The stubs know only the server that aiohttp makes such a handler for; this is it.
        super().__init__(server, loop=loop, access_log=None, auto_decompress=False)  # type: ignore[arg-type]
        self._deadlines = deadlines
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._asked: web.BaseRequest | None = None
        self._waits_for_head = True
        self._heard_at = 0.0

    # -- what the connection tells -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._set(self._deadlines.head_seconds)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        if self._asked is None and not self._waits_for_head:
            self._waits_for_head = True
            self._set(self._deadlines.head_seconds)
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self._loop.call_later(self._deadlines.unread_seconds, self._hang_up)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # -- what the server tells ---------------------------------------------------------------------------------------

    def begin(self, request: web.BaseRequest) -> None:
        """Note that the head of a request is here."""
        self._asked = request
        self._waits_for_head = False
        self._heard_at = self._loop.time()
        self._set_for_body()

    def end(self) -> None:
        """Note that the request was answered."""
        self._asked = None
        self._set(self._deadlines.idle_seconds)

    def _set_for_body(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._asked is None or self._asked.content.is_eof():
            return
        self._timer = self._loop.call_at(self._heard_at + self._deadlines.body_seconds, self._look_at_body)

    def _look_at_body(self) -> None:
        """Hang up if nothing of the body has come in time, unless it is we who do not read."""
        now = self._loop.time()
        if self.transport is None or not cast(asyncio.ReadTransport, self.transport).is_reading():
            self._heard_at = now
        if now - self._heard_at < self._deadlines.body_seconds or self._asked is None:
            self._set_for_body()
        elif not self._asked.content.is_eof():
            self._hang_up()

    def _set(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._hang_up)

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.abort()
