"""Ports inside a session's sandbox: who listens, and connections to them. Works without any network."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from holdfast.errors import ProtocolError
from holdfast.link.link import Stream
from holdfast.link.streams import begin_stream, open_stream
from holdfast.protocol import frames
from holdfast.sessions.session import Session
from holdfast.sessions.use.using import Using

CALL_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Listening:
    """A TCP port that something listens at; ``pid`` and ``program`` where the sandbox lets us see them."""

    port: int
    address: str
    pid: int | None
    program: str | None


class Ports:
    """Ports of this node's sessions."""

    def __init__(self, using: Using) -> None:
        self._using = using

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
        async with self._using.use(session_id) as session, open_stream(session.link, "dial", fields) as stream:
            yield stream

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
        return await begin_stream(session.link, "dial", fields)


def _listening(told: object) -> Listening:
    """Return the runner's words, checked: it lives in the sandbox and may be anything by now."""
    match told:
        case {"port": int(port), "address": str(address), "pid": int() | None as pid, "program": str() | None as name}:
            return Listening(port, address, pid, name)
    raise ProtocolError("the runner described a port in words that make no sense")
