"""What a session is at one moment, written to disk: its files, by the driver, and its shells beside them.

::

    <root>/snp_…            what the driver wrote; it is there if, and only if, it is complete
    <root>/snp_….new        half of it
    <root>/snp_….shells     directories, variables, functions and options of its shells, and its kind

The session goes on as before: one that sleeps is not woken, and a command that runs is not disturbed. Of a shell that
is busy, the state before its command is kept.
"""

import asyncio
from pathlib import Path

from holdfast.drivers.base import Driver
from holdfast.drivers.snapshot_facts import SnapshotFacts
from holdfast.errors import DriverUnsupported, WrongState
from holdfast.link.hub import LinkHub
from holdfast.protocol import frames
from holdfast.sessions.lifecycle import Lifecycle
from holdfast.sessions.machine import Status
from holdfast.sessions.refusals import unusable
from holdfast.sessions.row_steps import RowSteps
from holdfast.sessions.saved_shells import SavedShells
from holdfast.sessions.sleep import SHELL_SECONDS
from holdfast.sessions.types import SnapshotKind
from holdfast.store import SessionRow

USABLE = (Status.ACTIVE, Status.PAUSED)


class Captures:
    """All of one node, by the id of a snapshot, below ``root``. ``asleep`` are the shells of sleeping sessions."""

    def __init__(
        self, driver: Driver, hub: LinkHub, lifecycle: Lifecycle, rows: RowSteps, asleep: SavedShells, root: Path
    ) -> None:
        self._driver = driver
        self._hub = hub
        self._lifecycle = lifecycle
        self._rows = rows
        self._asleep = asleep
        self._root = root
        self._shells = SavedShells(root)

    def check_ability(self) -> None:
        if not self._driver.capabilities.snapshot:
            raise DriverUnsupported(f"the {self._driver.name} driver takes no snapshots here")

    def path(self, id: str) -> Path:
        return self._root / id

    async def take(self, id: str, session_id: str, *, memory: bool = False, lasting: bool = True) -> SnapshotKind:
        """Write down this session as ``id``; raises the error that its state calls for.

        ``memory``: with its processes, where the driver can. While it lasts nobody puts the session to sleep, wakes or
        destroys it.
        """
        self.check_ability()
        await asyncio.to_thread(self._root.mkdir, mode=0o700, parents=True, exist_ok=True)
        async with self._lifecycle.alone(session_id):
            row = await self._rows.lease(session_id)
            try:
                if row.status not in USABLE:
                    raise unusable(row)
                header, body = await self._shells_of(row)
                kind = await self._write(id, session_id, memory and self._driver.capabilities.memory_copies, lasting)
                await self._shells.write(id, ({**header, "kind": kind}, body), lasting=lasting)
            finally:
                await self._rows.release(row)
        return kind

    async def _write(self, id: str, session_id: str, memory: bool, lasting: bool) -> SnapshotKind:
        """What was written, as the snapshot itself says: keeping memory for one sandbox is not giving it to another."""
        handle, path = self._driver.handle_for(session_id), self.path(id)
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
        header, body = await self._shells.find(id) or ({}, b"")
        return SnapshotKind(str(header.pop("kind", SnapshotKind.FILES))), (header, body)

    async def size(self, id: str) -> int:
        return await self._driver.measure(self.path(id))

    async def forget(self, id: str) -> None:
        """All of it, whole or half; what is gone already is success."""
        if id in await self.ids():
            await self._driver.forget_snapshot(self.path(id))
            await self._shells.remove(id)

    async def ids(self) -> set[str]:
        """Of which there is anything on disk."""
        return await asyncio.to_thread(self._ids)

    def _ids(self) -> set[str]:
        try:
            return {entry.name.partition(".")[0] for entry in self._root.iterdir()}
        except FileNotFoundError:
            return set()
