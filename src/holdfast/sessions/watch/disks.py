"""Disks of sandboxes that the kernel has made read-only, because the host's was full: told, and mended when it is not.

Such a file system takes no write any more and cannot be made writable while it is mounted. So the sandbox is stopped
with its files and shells kept, its disk is checked, and it is started again, as from a sleep. Its processes are lost;
they could not write anyway. One that is in use is left alone until its commands have ended.
"""

from functools import partial

import structlog

from holdfast.drivers.base import Driver
from holdfast.errors import Conflict, DiskFull, HoldfastError, StaleRow
from holdfast.records.machine import PausedAs, Status
from holdfast.sessions.live import Clock
from holdfast.sessions.operations import Operations, reporting
from holdfast.sessions.sleep import Sleep
from holdfast.sessions.telling.event_kinds import Kind
from holdfast.sessions.watch.disk_guard import HELD
from holdfast.sessions.watch.room import Room
from holdfast.store import SessionStore, spending

log = structlog.get_logger(__name__)

_TRIM = "trim"
READ_ONLY = "its disk is read-only, because the host's was full; it is mended when there is room and it is not in use"


class DiskWatch:
    """Of one node."""

    def __init__(
        self, store: SessionStore, driver: Driver, sleep: Sleep, operations: Operations, room: Room, *, clock: Clock
    ) -> None:
        self._store = store
        self._driver = driver
        self._sleep = sleep
        self._operations = operations
        self._room = room
        self._clock = clock

    async def tick(self) -> None:
        if self._room.is_low:
            self._operations.spawn(_TRIM, reporting("disk.trim", self._driver.trim))
        try:
            broken = await self._driver.read_only()
        except HoldfastError as error:
            log.warning("disk.look.failed", error=error.message)
            return
        low = await self._room.look() if broken else False
        for session_id in broken:
            if not self._operations.running(session_id) and await self._tell(session_id) and not low:
                mend = partial(self._mend, session_id)
                self._operations.spawn(session_id, reporting("disk.mend", mend, session_id=session_id))

    async def _tell(self, session_id: str) -> bool:
        """Once. Returns whether it is awake: one that sleeps is looked at when it is woken."""
        try:
            row = await self._store.get(session_id)
            if row.status != Status.ACTIVE or row.error in (READ_ONLY, HELD):
                return row.status == Status.ACTIVE
            with spending():
                await self._store.change(
                    session_id,
                    statuses=[Status.ACTIVE],
                    generation=None,
                    now=self._clock(),
                    values={"error": READ_ONLY},
                    tell=[Kind.READ_ONLY],
                )
        except (HoldfastError, StaleRow) as error:
            log.warning("disk.read_only.untold", session_id=session_id, error=error.message)
            return False
        log.error("session.disk.read_only", session_id=session_id, next="mended when there is room")
        return True

    async def _mend(self, session_id: str) -> None:
        try:
            await self._sleep.pause(session_id, PausedAs.FILES)
        except (Conflict, DiskFull):
            return  # in use, or frozen until there is room
        await self._sleep.wake(session_id)
        log.info("session.disk.mended", session_id=session_id)
