"""What a pooled sandbox is made ready for, beyond commands: its purpose, and who starts what in it beforehand.

The session service does not know what a purpose means. Whoever does (the thread service) brings a ``Warmer``; a create
that names the same purpose may be given such a sandbox, and no other create is.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import SandboxLost
from holdfast.sessions.context import Context
from holdfast.sessions.session import Session
from holdfast.sessions.types import CreateRequest
from holdfast.sessions.use.files import SessionFiles
from holdfast.sessions.use.ports import Ports
from holdfast.sessions.use.processes import Processes
from holdfast.sessions.use.using import Using


@dataclass(frozen=True, slots=True)
class PooledSandbox:
    """What can be used of a sandbox that is no session yet."""

    processes: Processes
    files: SessionFiles
    ports: Ports


class Warmer(Protocol):
    """Of one purpose. All that it does to a sandbox must be the same for everybody: nobody knows yet whose it is."""

    @property
    def purpose(self) -> str:
        """What a create names that wants such a sandbox."""
        ...

    def request(self) -> CreateRequest:
        """Return what such a create asks for, if it names nothing else."""
        ...

    async def fingerprint(self) -> str:
        """Of all that ``warm`` depends on: a sandbox that was made ready under another one is of no use any more."""
        ...

    async def warm(self, session_id: str, sandbox: PooledSandbox) -> None:
        """Start in it what can be started. An error says that the sandbox is of no use."""
        ...


class Borrowed(Using):
    """Sandboxes that are being made ready: usable here, and by nobody else."""

    def __init__(self, context: Context) -> None:
        self._lent: dict[str, Session] = {}
        files = SessionFiles(self, context.room, context.settings.max_file_bytes)
        self._sandbox = PooledSandbox(Processes(self), files, Ports(self))

    @contextlib.contextmanager
    def borrow(self, session: Session) -> Iterator[PooledSandbox]:
        """Lend a prepared sandbox, to start something in it before it is a session."""
        self._lent[session.id] = session
        try:
            yield self._sandbox
        finally:
            del self._lent[session.id]

    def live(self, session_id: str) -> Session | None:
        return self._lent.get(session_id)

    async def find(self, session_id: str) -> Session:
        session = self._lent.get(session_id)
        if session is None:
            raise SandboxLost(f"the sandbox {session_id} is not being made ready any more")
        return session
