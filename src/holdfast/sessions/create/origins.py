"""Where the files and shells of a new session come from: a snapshot, or the session that it is a copy of.

A fork is made of a snapshot that is good for one sandbox and belongs to nobody else: its id follows from the session's,
it has no row, and it goes when the session is up. An attempt that was cut off takes it anew, because the sandbox before
may have used it up.
"""

from collections.abc import Callable

import structlog

from holdfast.errors import HoldfastError
from holdfast.link.link import Link
from holdfast.protocol import frames
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.copies.captures import Captures
from holdfast.sessions.create.origin import Origin, Restored
from holdfast.sessions.ids import fork_id_for
from holdfast.sessions.operations import Operations, reporting
from holdfast.sessions.sleep import SHELL_SECONDS, Sleep
from holdfast.sessions.types import DEFAULT_SHELL

log = structlog.get_logger(__name__)

OWN_VARIABLES = ("SANDBOX_ID",)
"""What a driver tells each sandbox about itself; a copy has its own."""

FORGET = "forget:"


class KeptOrigins:
    """An ``Origins`` of the life cycle."""

    def __init__(
        self,
        snapshots: Captures,
        forks: Captures,
        operations: Operations,
        sleep: Sleep,
        copies_memory: Callable[[], bool],
    ) -> None:
        self._snapshots = snapshots
        self._forks = forks
        self._operations = operations
        self._sleep = sleep
        self._copies_memory = copies_memory

    async def prepare(self, row: SessionRow, /) -> Origin | None:
        fork_of = row.spec.fork_of
        if fork_of is not None:
            id = fork_id_for(row.id)
            await self._forks.forget(id)
            await self._take(id, fork_of)
            return Origin(await self._forks.path(id), consume=True)
        if row.snapshot_id is not None:
            return Origin(await self._snapshots.path(row.snapshot_id), consume=False)
        return None

    async def _take(self, id: str, fork_of: str) -> None:
        """With memory, where that can be: then the original's is put on disk for the moment, as in any sleep.

        Whoever uses it meanwhile waits. One that is in use is left alone, and only its files are copied.
        """
        slept = self._copies_memory() and await self._put_to_sleep(fork_of)
        try:
            await self._forks.take(id, fork_of, memory=True, lasting=False)
        finally:
            if slept:
                await self._wake(fork_of)

    async def _put_to_sleep(self, session_id: str) -> bool:
        """Whether it sleeps now, and did not before."""
        try:
            return await self._sleep.put_on_disk(session_id)
        except HoldfastError as error:
            log.info("fork.files_only", session_id=session_id, why=error.message)
            return False

    async def _wake(self, session_id: str) -> None:
        try:
            await self._sleep.wake(session_id)
        except HoldfastError as error:
            log.warning("fork.wake.failed", session_id=session_id, error=error.message, next="its next use wakes it")

    async def complete(self, row: SessionRow, link: Link, /) -> Restored | None:
        if row.spec.fork_of is not None:
            kind, (header, body) = await self._forks.beside(fork_id_for(row.id))
        elif row.snapshot_id is not None:
            kind, (header, body) = await self._snapshots.beside(row.snapshot_id)
        else:
            return None
        if kind is SnapshotKind.MEMORY:  # its shells are among the processes that came back
            await link.call("ping", {}, timeout=SHELL_SECONDS)  # by now the runner knows who it is
            return Restored(kind, _directory(header) or link.home)
        if "shells" not in header:
            return Restored(kind, _directory(header) or link.home)
        renew = [*OWN_VARIABLES, *row.spec.renewed]
        await link.call("shells.load", {**header, "renew": renew}, body, timeout=SHELL_SECONDS)
        return Restored(kind, _directory(header) or link.home)

    def done(self, row: SessionRow, /) -> None:
        if row.spec.fork_of is not None:
            id = fork_id_for(row.id)
            self._operations.spawn(
                FORGET + id, reporting("fork.forget", lambda: self._forks.forget(id), snapshot_id=id)
            )

    async def forget(self, session_id: str) -> None:
        """When the session is destroyed, however far it had come."""
        await self._operations.wait(FORGET + fork_id_for(session_id))
        await self._forks.forget(fork_id_for(session_id))


def _directory(header: frames.Header) -> str | None:
    """Of the main shell, in what was saved."""
    listed = header.get("shells")
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and one.get("name") == DEFAULT_SHELL and isinstance(one.get("cwd"), str):
            return str(one["cwd"])
    return None
