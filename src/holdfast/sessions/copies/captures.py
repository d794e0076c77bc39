"""What a session is at one moment, written to disk: its files, by the driver, and its shells beside them.

::

    <root>/snp_…            what the driver wrote; it is there if, and only if, it is complete
    <root>/snp_….new        half of it
    <root>/snp_….shells     directories, variables, functions and options of its shells, and its kind; with
                            ``.new`` behind it until it is whole

Where hosts share a directory, each has its root in it and can read the others': ids are unique, so a snapshot is where
it is found.

The session goes on as before: one that sleeps is not woken, and a command that runs is not disturbed. Of a shell that
is busy, the state before its command is kept.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.drivers.base import Driver
from holdfast.drivers.disk.snapshot_facts import SnapshotFacts
from holdfast.errors import DriverUnsupported, Unavailable, WrongState
from holdfast.link.hub import LinkHub
from holdfast.protocol import frames
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.copies import saved_shells
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.lifecycle import Lifecycle
from holdfast.sessions.live import unusable
from holdfast.sessions.row_steps import RowSteps
from holdfast.sessions.sleep import SHELL_SECONDS

T = TypeVar("T")

USABLE = (Status.ACTIVE, Status.PAUSED)
_ENDS = ("", ".new", *saved_shells.ENDS)


class Captures:
    """All that a node can reach, by the id of a snapshot: its own below ``root``, those of others in ``shared``.

    ``asleep`` are the shells of sleeping sessions.
    """

    def __init__(
        self,
        driver: Driver,
        hub: LinkHub,
        lifecycle: Lifecycle,
        rows: RowSteps,
        asleep: SavedShells,
        root: Path,
        shared: Path | None = None,
    ) -> None:
        self._driver = driver
        self._hub = hub
        self._lifecycle = lifecycle
        self._rows = rows
        self._asleep = asleep
        self._root = root
        self._shared = shared

    def check_ability(self) -> None:
        if not self._driver.capabilities.snapshot:
            raise DriverUnsupported(f"the {self._driver.name} driver takes no snapshots here")

    async def path(self, id: str) -> Path:
        """Where it is; where there is nothing of it, where it would be. Raises ``Unavailable``."""
        return (await self._root_of(id) or self._root) / id

    async def reaches(self, id: str) -> bool:
        """Whether it is complete, and can be read from here. Raises ``Unavailable``, which says neither yes nor no."""
        place = await self.path(id)
        return await self._blocking(place.is_dir)

    async def _root_of(self, id: str) -> Path | None:
        """Where there is anything of it."""
        return await self._blocking(lambda: self._find_root(id))

    async def _blocking(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            why = f"the directory of snapshots cannot be used: {error.strerror} ({error.filename})"
            raise Unavailable(f"{why}; see to it, and try again") from error

    def _find_root(self, id: str) -> Path | None:
        roots = [self._root]
        if self._shared is not None and self._shared.exists():
            roots += sorted(self._shared.iterdir())
        return next((root for root in roots if any((root / f"{id}{end}").exists() for end in _ENDS)), None)

    async def take(self, id: str, session_id: str, *, memory: bool = False, lasting: bool = True) -> SnapshotKind:
        """Write down this session as ``id``; raises the error that its state calls for.

        ``memory``: with its processes, where the driver can. While it lasts nobody puts the session to sleep, wakes or
        destroys it.
        """
        self.check_ability()
        await self._blocking(lambda: self._root.mkdir(mode=0o700, parents=True, exist_ok=True))
        async with self._lifecycle.alone(session_id):
            row = await self._rows.lease(session_id)
            try:
                if row.status not in USABLE:
                    raise unusable(row)
                header, body = await self._shells_of(row)
                kind = await self._write(id, session_id, memory and self._driver.capabilities.memory_copies, lasting)
                await SavedShells(self._root).write(id, ({**header, "kind": kind}, body), lasting=lasting)
            finally:
                await self._rows.release(row)
        return kind

    async def _write(self, id: str, session_id: str, memory: bool, lasting: bool) -> SnapshotKind:
        """What was written, as the snapshot itself says: keeping memory for one sandbox is not giving it to another."""
        handle, path = self._driver.handle_for(session_id), self._root / id
        try:
            await self._driver.snapshot(handle, path, memory=memory, lasting=lasting)
        except DriverUnsupported:
            if not memory:
                raise
            await self._driver.snapshot(handle, path, lasting=lasting)
        facts = await asyncio.to_thread(SnapshotFacts.read, path)
        return SnapshotKind.MEMORY if facts.memory else SnapshotKind.FILES

    async def _shells_of(self, row: SessionRow) -> frames.Frame:
        if row.status == Status.PAUSED:
            return await self._asleep.find(row.id) or ({}, b"")
        link = self._hub.get(row.id)
        if link is None:
            raise WrongState(f"session {row.id} has no link yet; try again")
        return await link.call("shells.save", {"running": True}, timeout=SHELL_SECONDS)

    async def beside(self, id: str) -> tuple[SnapshotKind, frames.Frame]:
        """What kind of snapshot it is, and its shells, if it has any."""
        header, body = await SavedShells((await self.path(id)).parent).find(id) or ({}, b"")
        return SnapshotKind(str(header.pop("kind", SnapshotKind.FILES))), (header, body)

    async def size(self, id: str) -> int:
        return await self._driver.measure(await self.path(id))

    async def forget(self, id: str) -> None:
        """All of it, whole or half, whoever wrote it; what is gone already is success."""
        root = await self._root_of(id)
        if root is not None:
            await self._driver.forget_snapshot(root / id)
            await SavedShells(root).remove(id)

    async def own_ids(self) -> set[str]:
        """Of which this node has written anything."""
        return await self._blocking(self._ids)

    def _ids(self) -> set[str]:
        try:
            return {entry.name.partition(".")[0] for entry in self._root.iterdir()}
        except FileNotFoundError:
            return set()
