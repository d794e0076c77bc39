"""Connections into sandboxes: opened over the session's link, kept for the next request of the same visitor, counted.

Visitors never share one: what a program answers to one of them cannot end up with another.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.errors import TooManyConnections
from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.admission import Visitor
from holdfast.link.streams import end_stream, has_unread
from holdfast.sessions.session import Session
from holdfast.sessions.use.ports import Ports

IDLE_SECONDS = 2.0
"""Programs keep idle connections for 5 s or so; one that is closed in the same moment loses a request."""
MOST_IDLE = 256
_EACH = 8


Key = tuple[str, int, str]
"""Session, port and visitor: who may use a connection again."""


@dataclass(slots=True, eq=False)
class PortConnection:
    """A connection to a port of a session."""

    session: Session
    port: int
    place: SessionAddress
    visitor: Visitor
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: bool = False
    """It has carried a request before."""
    closed: bool = field(default=False, init=False)
    hang_up: Callable[[], None] | None = None
    """It ends the client's own connection at once."""

    @property
    def is_quiet(self) -> bool:
        """Whether it is open, and the program has said nothing that nobody asked for."""
        return not (self.closed or self.writer.is_closing() or self.reader.at_eof() or has_unread(self.reader))

    @property
    def key(self) -> Key:
        return self.session.id, self.port, self.visitor.name


class PortConnections:
    """All connections of the gateway into sandboxes."""

    def __init__(self, ports: Ports, most: int) -> None:
        self._ports = ports
        self._most = most
        self._open: Counter[str] = Counter()
        self._idle: dict[PortConnection, asyncio.TimerHandle] = {}
        self._alike: dict[Key, list[PortConnection]] = {}
        """The idle ones."""
        self.in_use: set[PortConnection] = set()

    async def open(
        self, session: Session, port: int, place: SessionAddress, visitor: Visitor, *, fresh: bool = False
    ) -> PortConnection:
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

    def _let_go(self, one: PortConnection) -> None:
        if one in self.in_use:
            self.in_use.discard(one)
            self._ports.use.closed(one.session.id, one.port)

    async def _connect(self, session: Session, port: int, place: SessionAddress, visitor: Visitor) -> PortConnection:
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
        return PortConnection(session, port, place, visitor, reader, writer)

    async def has_ended(self, one: PortConnection) -> bool:
        """Say whether it was the program that ended a connection: not we, and not the end of its sandbox."""
        return not one.closed and await self._ports.is_alive(one.session) and not one.closed

    def keep(self, one: PortConnection) -> None:
        """Keep a connection for the next request; its last answer was read to its end."""
        self._let_go(one)
        one.hang_up = None
        alike = self._alike.get(one.key, [])
        if len(self._idle) >= MOST_IDLE or len(alike) >= _EACH or not one.is_quiet:
            self.close(one)
            return
        one.used = True
        self._alike[one.key] = [*alike, one]
        self._idle[one] = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.close, one)

    def close(self, one: PortConnection) -> None:
        self._let_go(one)
        self._is_idle_no_more(one)
        if not one.closed:
            one.closed = True
            self._left(one.session.id)
            end_stream(one.writer)

    def cut(self, one: PortConnection) -> None:
        """Close a connection that somebody uses, and that of the client: also of one who takes nothing any more."""
        self.close(one)
        if one.hang_up is not None:
            one.hang_up()

    def __contains__(self, one: PortConnection) -> bool:
        """Say whether a connection is kept for another request."""
        return one in self._idle

    def close_all(self) -> None:
        for one in list(self._idle):
            self.close(one)

    def _take(self, session: Session, port: int, visitor: Visitor) -> PortConnection | None:
        for one in reversed(self._alike.get((session.id, port, visitor.name), [])):
            self._is_idle_no_more(one)
            if one.session is session and one.is_quiet:
                return one
            self.close(one)
        return None

    def _is_idle_no_more(self, one: PortConnection) -> None:
        timer = self._idle.pop(one, None)
        if timer is None:
            return
        timer.cancel()
        alike = [other for other in self._alike[one.key] if other is not one]
        if alike:
            self._alike[one.key] = alike
        else:
            del self._alike[one.key]

    def _close_idle_of(self, session_id: str) -> None:
        for one in [one for one in self._idle if one.session.id == session_id]:
            self.close(one)

    def _left(self, session_id: str) -> None:
        self._open[session_id] -= 1
        if self._open[session_id] <= 0:
            del self._open[session_id]
