"""Ports inside a session's sandbox: who listens, and connections to them. Works without any network."""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast.concurrency import Bounded
from holdfast.errors import HoldfastError, ProtocolError
from holdfast.link.link import Stream
from holdfast.link.streams import begin_stream, open_stream
from holdfast.protocol import frames
from holdfast.sessions.session import Session
from holdfast.sessions.use.using import Using

CALL_SECONDS = 20.0
_REMEMBERED = 10_000
ALIVE_SECONDS = 5.0
VISIT_BUFFER = 128 << 10
"""Visitors may be many, and slow: what waits for them in the daemon is kept small."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A TCP port that something listens at; ``pid`` and ``program`` where the sandbox lets us see them."""

    port: int
    address: str
    pid: int | None
    program: str | None


class PortUse:
    """Which ports of sessions somebody is connected to, through this daemon, and since when nobody is."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, int]] = Counter()
        self._left: Bounded[tuple[str, int], float] = Bounded(_REMEMBERED)

    def opened(self, session_id: str, port: int) -> None:
        self._open[session_id, port] += 1

    def closed(self, session_id: str, port: int) -> None:
        self._left[session_id, port] = asyncio.get_running_loop().time()
        self._open[session_id, port] -= 1
        if self._open[session_id, port] <= 0:
            del self._open[session_id, port]

    def is_open(self, session_id: str, port: int) -> bool:
        return (session_id, port) in self._open

    def left_at(self, session_id: str, port: int) -> float:
        """Return when, by the loop's clock, the last one has left; minus infinity if there was none."""
        return self._left.get((session_id, port), -math.inf)


class Ports:
    """Ports of this node's sessions."""

    def __init__(self, using: Using) -> None:
        self._using = using
        self.use = PortUse()

    async def list(self, session_id: str) -> list[Listening]:
        header, _ = await self._using.call(session_id, "ports", {}, timeout=CALL_SECONDS)
        told = header.get("ports")
        if not isinstance(told, list):
            raise ProtocolError("the runner sent a list of ports that is none")
        return [_listening(one) for one in told]

    @contextlib.asynccontextmanager
    async def dial(self, session_id: str, port: int) -> AsyncIterator[Stream]:
        """A connection to a port inside, closed at the end of the block. The session is in use meanwhile.

        Raises ``NothingListens`` if there is nobody to connect to.
        """
        fields: frames.Header = {"port": port}
        self.use.opened(session_id, port)
        try:
            async with self._using.use(session_id) as session, open_stream(session.link, "dial", fields) as stream:
                yield stream
        finally:
            self.use.closed(session_id, port)

    # -- for who may not wake a session --------------------------------------------------------------------------------

    def awake(self, session_id: str) -> Session | None:
        """Return the session if it is awake, on this host."""
        return self._using.live(session_id)

    async def wake(self, session_id: str) -> Session:
        """Wake the session where it sleeps; raises the error that its state calls for."""
        return await self._using.find(session_id)

    async def connect(self, session: Session, port: int) -> Stream:
        """Open a connection to a port inside. This does not count as a use; the caller ends it by ``end_stream``.

        Raises ``NothingListens`` if there is nobody to connect to.
        """
        fields: frames.Header = {"port": port}
        return await begin_stream(session.link, "dial", fields, buffer=VISIT_BUFFER)

    async def is_alive(self, session: Session) -> bool:
        """Ask the sandbox whether it is still there: the end of a connection alone does not tell."""
        try:
            await session.link.call("ping", {}, timeout=ALIVE_SECONDS)
        except HoldfastError:
            return False
        return True


def _listening(told: object) -> Listening:
    """Return the runner's words, checked: it lives in the sandbox and may be anything by now."""
    match told:
        case {"port": int(port), "address": str(address), "pid": int() | None as pid, "program": str() | None as name}:
            return Listening(port, address, pid, name)
    raise ProtocolError("the runner described a port in words that make no sense")
