"""Connections into sandboxes: opened over the session's link, kept for the next request of the same visitor, counted.

Visitors never share one: what a program answers to one of them cannot end up with another.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from holdfast.errors import TooManyConnections
from holdfast.gateway.addresses import Place
from holdfast.gateway.admission import Visitor
from holdfast.link.streams import end_stream
from holdfast.sessions.session import Session
from holdfast.sessions.use.ports import Ports

IDLE_SECONDS = 2.0
"""Programs keep idle connections for 5 s or so; one that is closed in the same moment loses a request."""
MOST_IDLE = 256
_EACH = 8


@dataclass(slots=True, eq=False)
class Upstream:
    """A connection to a port of a session."""

    session: Session
    port: int
    place: Place
    visitor: Visitor
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: bool = False
    """It has carried a request before."""
    closed: bool = field(default=False, init=False)

    @property
    def key(self) -> tuple[str, int, str]:
        return self.session.id, self.port, self.visitor.name


class Upstreams:
    """All connections of the gateway into sandboxes."""

    def __init__(self, ports: Ports, most: int) -> None:
        self._ports = ports
        self._most = most
        self._open: Counter[str] = Counter()
        self._idle: dict[Upstream, asyncio.TimerHandle] = {}
        self.in_use: set[Upstream] = set()

    async def open(
        self, session: Session, port: int, place: Place, visitor: Visitor, *, fresh: bool = False
    ) -> Upstream:
        """Return a connection; ``fresh``: none that has been used.

        Raises ``NothingListens``, ``TooManyConnections``.
        """
        one = None if fresh else self._take(session, port, visitor)
        self._ports.use.opened(session.id, port)
        try:
            one = one or await self._connect(session, port, place, visitor)
        except BaseException:
            self._ports.use.closed(session.id, port)
            raise
        self.in_use.add(one)
        return one

    def _let_go(self, one: Upstream) -> None:
        if one in self.in_use:
            self.in_use.discard(one)
            self._ports.use.closed(one.session.id, one.port)

    async def _connect(self, session: Session, port: int, place: Place, visitor: Visitor) -> Upstream:
        if self._open[session.id] >= self._most:
            self._close_idle_of(session.id)
        if self._open[session.id] >= self._most:
            raise TooManyConnections(f"{self._most} connections into this session are open already; close some")
        self._open[session.id] += 1
        try:
            reader, writer = await self._ports.connect(session, port)
        except BaseException:
            self._left(session.id)
            raise
        return Upstream(session, port, place, visitor, reader, writer)

    def keep(self, one: Upstream) -> None:
        """Keep a connection for the next request; its last answer was read to its end."""
        self._let_go(one)
        same = sum(other.key == one.key for other in self._idle)
        if one.closed or len(self._idle) >= MOST_IDLE or same >= _EACH or one.reader.at_eof():
            self.close(one)
            return
        one.used = True
        self._idle[one] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.close, one)

    def close(self, one: Upstream) -> None:
        self._let_go(one)
        timer = self._idle.pop(one, None)
        if timer is not None:
            timer.cancel()
        if not one.closed:
            one.closed = True
            self._left(one.session.id)
            end_stream(one.writer)

    def __contains__(self, one: Upstream) -> bool:
        """Say whether a connection is kept for another request."""
        return one in self._idle

    def close_all(self) -> None:
        for one in list(self._idle):
            self.close(one)

    def _take(self, session: Session, port: int, visitor: Visitor) -> Upstream | None:
        key = session.id, port, visitor.name
        for one, timer in list(self._idle.items()):
            if one.key != key:
                continue
            timer.cancel()
            del self._idle[one]
            if one.session is session and not one.reader.at_eof() and not one.writer.is_closing():
                return one
            self.close(one)
        return None

    def _close_idle_of(self, session_id: str) -> None:
        for one in [one for one in self._idle if one.session.id == session_id]:
            self.close(one)

    def _left(self, session_id: str) -> None:
        self._open[session_id] -= 1
        if self._open[session_id] <= 0:
            del self._open[session_id]
