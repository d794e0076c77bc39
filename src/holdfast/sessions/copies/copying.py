"""What a session is at one moment, written to disk, and sessions that are made from that.

::

    <root>/snp_…            what the driver wrote; it is there if, and only if, it is complete
    <root>/snp_….new        half of it
    <root>/snp_….shells     directories, variables, functions and options of its shells, and its kind; with
                            ``.new`` behind it until it is whole

Where hosts share a directory, each has its root in it and can read the others': ids are unique, so a snapshot is where
it is found.

The session goes on as before: one that sleeps is not woken, and a command that runs is not disturbed. Of a shell that
is busy, the state before its command is kept.

A fork is made of a snapshot that is good for one sandbox and belongs to nobody else: its id follows from the session's,
it has no row, and it goes when the session is up. An attempt that was cut off takes it anew, because the sandbox before
may have used it up.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import structlog

from holdfast.drivers.base import Driver, Handle, SandboxSpec
from holdfast.drivers.disk.snapshot_facts import SnapshotFacts
from holdfast.errors import DriverUnsupported, HoldfastError, Unavailable, WrongState
from holdfast.link.link import Link
from holdfast.protocol import frames
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.context import Context
from holdfast.sessions.copies import saved_shells
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.ids import fork_id_for
from holdfast.sessions.session import Sessions, unusable
from holdfast.sessions.sleep import SHELL_SECONDS, Sleep
from holdfast.sessions.types import DEFAULT_SHELL

log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Restored = tuple[SnapshotKind, str]
"""What came back in a sandbox that was made from a copy, and the directory that its shell is in."""

USABLE = (Status.ACTIVE, Status.PAUSED)
FORGET = "forget:"
OWN_VARIABLES = ("SANDBOX_ID",)
"""What a driver tells each sandbox about itself; a copy has its own."""
_ENDS = ("", ".new", *saved_shells.ENDS)


class Copies:
    """Snapshots on disk, by their ids: those of this node below ``root``, those of others in ``shared``."""

    def __init__(self, driver: Driver, root: Path, shared: Path | None = None) -> None:
        self._driver = driver
        self.root = root
        self._shared = shared

    async def path(self, id: str) -> Path:
        """Return where it is; where there is nothing of it, where it would be. Raises ``Unavailable``."""
        return (await _blocking(self._find_root, id) or self.root) / id

    async def reaches(self, id: str) -> bool:
        """Whether it is complete, and can be read from here. Raises ``Unavailable``, which says neither yes nor no."""
        if self._shared is not None:
            await _blocking(self._shared.stat)  # where it is not mounted, nothing is known of what is in it
        place = await self.path(id)
        return await _blocking(place.is_dir)

    def _find_root(self, id: str) -> Path | None:
        """Return the directory in which there is anything of it."""
        roots = [self.root]
        if self._shared is not None and self._shared.exists():
            roots += sorted(self._shared.iterdir())
        return next((root for root in roots if any((root / f"{id}{end}").exists() for end in _ENDS)), None)

    async def beside(self, id: str) -> tuple[SnapshotKind, frames.Frame]:
        """Return what kind of snapshot it is, and its shells, if it has any."""
        header, body = await SavedShells((await self.path(id)).parent).find(id) or ({}, b"")
        return SnapshotKind(str(header.pop("kind", SnapshotKind.FILES))), (header, body)

    async def forget(self, id: str) -> None:
        """Remove all of it, whole or half, whoever wrote it; what is gone already is success."""
        root = await _blocking(self._find_root, id)
        if root is not None:
            await self._driver.forget_snapshot(root / id)
            await SavedShells(root).remove(id)

    async def own_ids(self) -> set[str]:
        """Of which this node has written anything."""
        return await _blocking(self._ids)

    def _ids(self) -> set[str]:
        try:
            return {entry.name.partition(".")[0] for entry in self.root.iterdir()}
        except FileNotFoundError:
            return set()


class Copying:
    """Takes copies of sessions, and makes sandboxes from them. ``snapshots`` have rows; ``forks`` last a moment."""

    def __init__(self, context: Context, sessions: Sessions, sleep: Sleep) -> None:
        self._context = context
        self._sessions = sessions
        self._sleep = sleep
        kept = context.kept
        self.snapshots = Copies(context.driver, kept.snapshot_dir(context.node), kept.shared)
        self.forks = Copies(context.driver, kept.fork_dir)

    def check_ability(self) -> None:
        if not self._context.driver.capabilities.snapshot:
            raise DriverUnsupported(f"the {self._context.driver.name} driver takes no snapshots here")

    # -- of a session --------------------------------------------------------------------------------------------------

    async def take(
        self, copies: Copies, id: str, session_id: str, *, memory: bool = False, lasting: bool = True
    ) -> SnapshotKind:
        """Write down this session as ``id``; raises the error that its state calls for.

        ``memory``: with its processes, where the driver can. While it lasts nobody puts the session to sleep, wakes or
        destroys it.
        """
        self.check_ability()
        await _blocking(partial(copies.root.mkdir, mode=0o700, parents=True, exist_ok=True))
        async with self._sessions.alone(session_id):
            session = await self._sessions.get(session_id)
            await session.lease()
            try:
                if session.record.status not in USABLE:
                    raise unusable(session.record)
                header, body = await self._shells_of(session.record)
                memory = memory and self._context.driver.capabilities.memory_copies
                kind = await self._write(copies.root / id, session.handle, memory, lasting)
                await SavedShells(copies.root).write(id, ({**header, "kind": kind}, body), lasting=lasting)
            finally:
                await session.release()
        return kind

    async def _write(self, path: Path, handle: Handle, memory: bool, lasting: bool) -> SnapshotKind:
        """What was written, as the snapshot itself says: keeping memory for one sandbox is not giving it to another."""
        driver = self._context.driver
        try:
            await driver.snapshot(handle, path, memory=memory, lasting=lasting)
        except DriverUnsupported:
            if not memory:
                raise
            await driver.snapshot(handle, path, lasting=lasting)
        facts = await asyncio.to_thread(SnapshotFacts.read, path)
        return SnapshotKind.MEMORY if facts.memory else SnapshotKind.FILES

    async def _shells_of(self, row: SessionRow) -> frames.Frame:
        if row.status == Status.PAUSED:
            return await self._context.shells.find(row.id) or ({}, b"")
        link = self._context.hub.get(row.id)
        if link is None:
            raise WrongState(f"session {row.id} has no link yet; try again")
        return await link.call("shells.save", {"running": True}, timeout=SHELL_SECONDS)

    # -- for a new session ---------------------------------------------------------------------------------------------

    async def make(self, row: SessionRow, spec: SandboxSpec) -> Handle:
        """Make the sandbox: from nothing, or from the snapshot or the session that it is a copy of. Safe to repeat."""
        driver, fork_of = self._context.driver, row.spec.fork_of
        if fork_of is not None:
            id = fork_id_for(row.id)
            await self.forks.forget(id)
            await self._take_fork(id, fork_of)
            return await driver.restore(spec, await self.forks.path(id), consume=True)
        if row.snapshot_id is not None:
            return await driver.restore(spec, await self.snapshots.path(row.snapshot_id), consume=False)
        return await driver.create(spec)

    async def _take_fork(self, id: str, fork_of: str) -> None:
        """With memory, where that can be: then the original's is put on disk for the moment, as in any sleep.

        Whoever uses it meanwhile waits. One that is in use is left alone, and only its files are copied.
        """
        slept = False
        try:
            if self._context.driver.capabilities.memory_copies:
                slept = await self._sleep.put_on_disk(fork_of)
        except HoldfastError as error:
            log.info("fork.files_only", session_id=fork_of, why=error.message)
        try:
            await self.take(self.forks, id, fork_of, memory=True, lasting=False)
        finally:
            try:
                if slept:
                    await self._sleep.wake(fork_of)
            except HoldfastError as error:
                log.warning("fork.wake.failed", session_id=fork_of, error=error.message, next="its next use wakes it")

    async def complete(self, row: SessionRow, link: Link) -> Restored | None:
        """Bring back what is not in the files, before the first command. Safe to repeat."""
        if row.spec.fork_of is not None:
            kind, (header, body) = await self.forks.beside(fork_id_for(row.id))
        elif row.snapshot_id is not None:
            kind, (header, body) = await self.snapshots.beside(row.snapshot_id)
        else:
            return None
        if kind is SnapshotKind.MEMORY:  # its shells are among the processes that came back
            await link.call("ping", {}, timeout=SHELL_SECONDS)  # by now the runner knows who it is
        elif "shells" in header:
            renew = [*OWN_VARIABLES, *row.spec.renewed]
            await link.call("shells.load", {**header, "renew": renew}, body, timeout=SHELL_SECONDS)
        return kind, _directory(header) or link.home

    def done(self, row: SessionRow) -> None:
        """The session is up: what was made for it alone can go."""
        if row.spec.fork_of is not None:
            id = fork_id_for(row.id)
            forget = partial(self.forks.forget, id)
            self._context.operations.attempt(FORGET + id, "fork.forget", forget, snapshot_id=id)

    async def forget(self, session_id: str) -> None:
        """When the session is destroyed, however far it had come."""
        await self._context.operations.wait(FORGET + fork_id_for(session_id))
        await self.forks.forget(fork_id_for(session_id))


async def _blocking(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except OSError as error:
        why = f"the directory of snapshots cannot be used: {error.strerror} ({error.filename})"
        raise Unavailable(f"{why}; see to it, and try again") from error


def _directory(header: frames.Header) -> str | None:
    """Of the main shell, in what was saved."""
    listed = header.get("shells")
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and one.get("name") == DEFAULT_SHELL and isinstance(one.get("cwd"), str):
            return str(one["cwd"])
    return None
