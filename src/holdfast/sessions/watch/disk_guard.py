"""Sandboxes that would fill the host's disk are stopped before it is full, and go on when there is room.

What is left is what is free, less what the kernel still owes the disk: programs have written it, and it is on its way.
Below the mark (``disk_low_mb``) those sandboxes are frozen that have written more since it was last well above than
their share of what is left. The share shrinks with what is left, so whoever goes on writing is frozen in the end, and
all who are not have together taken less than a half. Where that is less than an eighth of the mark, they may have taken
so much: a session that wrote a few lines is not to blame for a disk that others have filled.

A frozen session stays ``active``: its ``error`` says why nothing answers, whoever calls it gets ``disk_full`` at once,
and it can be destroyed. Its row tells the next daemon, too.

Where the host's disk was full all the same, the kernel has made disks of sandboxes read-only. Such a file system cannot
be made writable while it is mounted. So the sandbox is stopped with its files and shells kept, its disk is checked, and
it is started again, as from a sleep. Its processes are lost; they could not write anyway. One that is in use is left
alone until its commands have ended.
"""

import asyncio
import time
from collections.abc import Mapping
from functools import partial

import structlog

from holdfast.drivers.base import DiskUse
from holdfast.errors import Conflict, DiskFull, HoldfastError, StaleRow
from holdfast.records.machine import PausedAs, Status
from holdfast.records.sessions import SessionChange
from holdfast.sessions.context import Context
from holdfast.sessions.session import Session, Sessions
from holdfast.sessions.sleep import Sleep
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.store import spending

log = structlog.get_logger(__name__)

HELD = "disk_low: frozen until there is room on the host's disk"
READ_ONLY = "its disk is read-only, because the host's was full; it is mended when there is room and it is not in use"
FASTEST = 8 << 30
"""Bytes per second: no sandbox fills memory faster, and disks are slower still. So long a look may be put off."""
_TRIM = "trim"
_SECONDS = (0.005, 2.0)
_IDLE = 20
"""A look may take one in so many parts of the time."""
_BASE_SECONDS = 2.0
_SMALL_PART = 8
"""All sandboxes together may have written this part of the mark, also when others have left nothing of the disk."""
_MUCH_ROOM = 1.5
"""How many times the mark must be left before they go on."""


def hold(session: Session) -> None:
    """Nothing is asked of it any more, and what waits for an answer gets one."""
    session.link.hold(
        DiskFull(
            f"session {session.id} is frozen, because the host's disk is nearly full and it was writing; it goes "
            "on by itself when there is room: destroy sessions, remove snapshots or images"
        )
    )


class DiskGuard:
    """Of one node."""

    def __init__(self, context: Context, sessions: Sessions, sleep: Sleep) -> None:
        self._context = context
        self._sessions = sessions
        self._sleep = sleep
        self._driver = context.driver
        self._room = context.room
        self._base: Mapping[str, DiskUse] = {}
        self._base_at = float("-inf")
        self._untold: set[str] = set()
        context.metrics.held.set_function(lambda: float(len(self._held())))

    async def run(self) -> None:
        """For ever; where nothing can be frozen, or there is no mark, only to let go what an earlier daemon held."""
        if not self._room.low or not self._driver.capabilities.pause:
            for session in self._held():
                await self._let_go(session)
            return
        while True:
            began, left = time.monotonic(), FASTEST
            try:
                left = await self.look()
            except HoldfastError as error:
                log.warning("disk.guard.failed", error=error.message)
            except Exception:
                log.exception("disk.guard.failed")
            await asyncio.sleep(_pause(left, time.monotonic() - began))

    async def look(self) -> int:
        """Freeze and let go on what is to be, now; returns how much is left."""
        free = await self._room.measure()
        use = await self._driver.disk_use()
        left = free - sum(one.owed for one in use.values())
        if left >= self._room.low and time.monotonic() - self._base_at > _BASE_SECONDS:
            self._base, self._base_at = use, time.monotonic()
        self._base = {**use, **self._base}
        if left < self._room.low:
            await asyncio.gather(*(self._hold(session) for session in self._writers(use, max(0, left))))
        if left >= _MUCH_ROOM * self._room.low:
            for session in self._held():
                await self._let_go(session)
        for session_id in [*self._untold]:
            await self._tell(session_id, HELD, EventKind.DISK_LOW)
        return left

    def _held(self) -> list[Session]:
        return [session for session in self._sessions.all() if session.link.held is not None]

    def _writers(self, use: Mapping[str, DiskUse], left: int) -> list[Session]:
        """Return those that have taken more than their share; who is seen for the first time has taken nothing yet."""
        running = [session for session in self._sessions.all() if session.id in use and session.link.held is None]
        share = max(left / 2, self._room.low / _SMALL_PART) / max(1, len(running))
        return [one for one in running if use[one.id].taken - self._base[one.id].taken > share]

    async def _hold(self, session: Session) -> None:
        try:
            await self._driver.pause(session.handle)
            hold(session)
            if self._sessions.live(session.id) is not session:  # put to sleep, or destroyed, in this moment
                session.link.let_go()
                await self._driver.resume(session.handle)
                return
        except HoldfastError as error:
            log.warning("session.freeze.failed", session_id=session.id, error=error.message)
            return
        log.error("session.frozen", session_id=session.id, why="disk_low", next="goes on when there is room")
        self._untold.add(session.id)

    async def _let_go(self, session: Session) -> None:
        try:
            await self._driver.resume(session.handle)
        except HoldfastError as error:
            log.warning("session.thaw.failed", session_id=session.id, error=error.message, next="tried again")
            return
        session.link.let_go()
        self._untold.discard(session.id)
        log.info("session.thawed", session_id=session.id, why="disk_room")
        await self._tell(session.id, None, EventKind.DISK_ROOM)

    async def _tell(self, session_id: str, error: str | None, kind: EventKind) -> None:
        """What else is wrong with it stays in its row: it is told of by whoever mends it."""
        try:
            before = (await self._context.store.get(session_id)).error
            await self._note(session_id, error if before in (None, HELD) else before, kind)
        except StaleRow:
            pass  # put to sleep, or destroyed, meanwhile
        except HoldfastError as failed:
            log.warning("session.untold", session_id=session_id, kind=kind, error=failed.message)
            return
        self._untold.discard(session_id)

    async def _note(self, session_id: str, error: str | None, kind: EventKind) -> None:
        """Write into the row of an active session what is wrong with its disk."""
        now, values = self._context.clock(), SessionChange(error=error)
        with spending():
            await self._context.store.change(
                session_id, statuses=[Status.ACTIVE], generation=None, now=now, values=values, tell=[kind]
            )

    # -- disks that are read-only --------------------------------------------------------------------------------------

    async def mend(self) -> None:
        """Tell of disks that are read-only, and mend them where there is room and nobody uses them."""
        operations = self._context.operations
        if self._room.is_low:
            operations.attempt(_TRIM, "disk.trim", self._driver.trim)
        try:
            broken = await self._driver.read_only()
        except HoldfastError as error:
            log.warning("disk.look.failed", error=error.message)
            return
        low = await self._room.look() if broken else False
        for session_id in broken:
            if not operations.running(session_id) and await self._tell_read_only(session_id) and not low:
                operations.attempt(session_id, "disk.mend", partial(self._mend, session_id), session_id=session_id)

    async def _tell_read_only(self, session_id: str) -> bool:
        """Once. Returns whether it is awake: one that sleeps is looked at when it is woken."""
        try:
            row = await self._context.store.get(session_id)
            if row.status != Status.ACTIVE or row.error in (READ_ONLY, HELD):
                return row.status == Status.ACTIVE
            await self._note(session_id, READ_ONLY, EventKind.READ_ONLY)
        except HoldfastError as error:
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


def _pause(left: int, took: float) -> float:
    """Until the next look: nobody can have filled the disk by then."""
    shortest, longest = _SECONDS
    return min(longest, max(shortest, left / FASTEST, took * _IDLE))
