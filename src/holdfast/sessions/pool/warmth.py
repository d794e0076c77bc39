"""What a pooled sandbox is made ready for, beyond commands: its purpose, and who starts what in it beforehand.

The session service does not know what a purpose means. Whoever does (the thread service) brings a ``Warmer``; a create
that names the same purpose may be given such a sandbox, and no other create is.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import SandboxLost
from holdfast.records.sessions import SessionRow
from holdfast.sessions.live import Clock, LiveSession
from holdfast.sessions.types import CreateRequest
from holdfast.sessions.use.files import SessionFiles
from holdfast.sessions.use.ports import Ports
from holdfast.sessions.use.processes import Processes
from holdfast.sessions.watch.room import Room

Lend = Callable[[SessionRow], contextlib.AbstractContextManager[LiveSession]]


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
        """What such a create asks for, if it names nothing else."""
        ...

    async def fingerprint(self) -> str:
        """Of all that ``warm`` depends on: a sandbox that was made ready under another one is of no use any more."""
        ...

    async def warm(self, session_id: str, sandbox: PooledSandbox) -> None:
        """Start in it what can be started. An error says that the sandbox is of no use."""
        ...


class Borrowed:
    """Sandboxes that are being made ready: usable here, and by nobody else."""

    def __init__(self, lend: Lend, clock: Clock, room: Room) -> None:
        self._lend = lend
        self._lent: dict[str, LiveSession] = {}
        self.sandbox = PooledSandbox(
            Processes(self._usable, clock), SessionFiles(self._usable, clock, room), Ports(self._usable, clock)
        )

    @contextlib.contextmanager
    def borrow(self, row: SessionRow) -> Iterator[PooledSandbox]:
        with self._lend(row) as live:
            self._lent[row.id] = live
            try:
                yield self.sandbox
            finally:
                del self._lent[row.id]

    async def _usable(self, session_id: str) -> LiveSession:
        live = self._lent.get(session_id)
        if live is None:
            raise SandboxLost(f"the sandbox {session_id} is not being made ready any more")
        return live
