"""How everything in this package gets at a session: awake, and counted as in use."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from holdfast.errors import Asleep
from holdfast.protocol import frames
from holdfast.sessions.session import Session


class Using(ABC):
    """Finds what is to be used, by its id."""

    @abstractmethod
    async def find(self, session_id: str) -> Session:
        """Return the session, which can be used now; or raise the error that its state calls for."""

    @abstractmethod
    def live(self, session_id: str) -> Session | None:
        """Return the session if it can be used this moment, without waking it."""

    @contextlib.asynccontextmanager
    async def use(self, session_id: str) -> AsyncIterator[Session]:
        """As ``find``; the session is in use until the end of the block."""
        session = await self.find(session_id)
        with session.in_use():
            yield session

    async def call(
        self, session_id: str, op: str, fields: frames.Header, body: bytes = b"", *, timeout: float
    ) -> frames.Frame:
        """Call the session's runner, as one use of the session."""
        async with self.use(session_id) as session:
            return await session.link.call(op, fields, body, timeout=timeout)


class AwakeOnly(Using):
    """Uses sessions that are awake. It wakes none, and nothing by it counts as a use: for who only looks on."""

    def __init__(self, using: Using) -> None:
        self._using = using

    async def find(self, session_id: str) -> Session:
        session = self._using.live(session_id)
        if session is None:
            raise Asleep("the session is asleep, or is falling asleep")
        return session

    def live(self, session_id: str) -> Session | None:
        return self._using.live(session_id)

    @contextlib.asynccontextmanager
    async def use(self, session_id: str) -> AsyncIterator[Session]:
        yield await self.find(session_id)
