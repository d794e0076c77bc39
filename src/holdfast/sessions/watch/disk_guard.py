"""Sandboxes that would fill the host's disk are stopped before it is full, and go on when there is room.

What is left is what is free, less what the kernel still owes the disk: programs have written it, and it is on its way.
Below the mark (``disk_low_mb``) those sandboxes are frozen that have written more since it was last well above than
their share of what is left. The share shrinks with what is left, so whoever goes on writing is frozen in the end, and
all who are not have together taken less than a half. Where that is less than an eighth of the mark, they may have taken
so much: a session that wrote a few lines is not to blame for a disk that others have filled.

A frozen session stays ``active``: its ``error`` says why nothing answers, whoever calls it gets ``disk_full`` at once,
and it can be destroyed. Its row tells the next daemon, too.
"""

import asyncio
import time
from collections.abc import Mapping

import structlog

from holdfast.drivers.base import DiskUse, Driver
from holdfast.errors import DiskFull, HoldfastError, StaleRow
from holdfast.records.machine import Status
from holdfast.sessions.live import Clock, LiveSession, LiveSessions
from holdfast.sessions.telling.event_kinds import Kind
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.watch.room import Room
from holdfast.store import SessionStore, spending

log = structlog.get_logger(__name__)

HELD = "disk_low: frozen until there is room on the host's disk"
FASTEST = 8 << 30
"""Bytes per second: no sandbox fills memory faster, and disks are slower still. So long a look may be put off."""
_SECONDS = (0.005, 2.0)
_IDLE = 20
"""A look may take one in so many parts of the time."""
_BASE_SECONDS = 2.0
_SMALL_PART = 8
"""All sandboxes together may have written this part of the mark, also when others have left nothing of the disk."""
_MUCH_ROOM = 1.5
"""How many times the mark must be left before they go on."""


def hold(live: LiveSession) -> None:
    """Nothing is asked of it any more, and what waits for an answer gets one."""
    live.link.hold(
        DiskFull(
            f"session {live.session_id} is frozen, because the host's disk is nearly full and it was writing; it goes "
            "on by itself when there is room: destroy sessions, remove snapshots or images"
        )
    )


class DiskGuard:
    """Of one node."""

    def __init__(
        self,
        store: SessionStore,
        driver: Driver,
        live: LiveSessions,
        room: Room,
        metrics: SessionMetrics,
        *,
        clock: Clock,
    ) -> None:
        self._store = store
        self._driver = driver
        self._live = live
        self._room = room
        self._clock = clock
        self._base: Mapping[str, DiskUse] = {}
        self._base_at = float("-inf")
        self._untold: set[str] = set()
        metrics.held.set_function(lambda: float(len(self._held())))

    async def run(self) -> None:
        """For ever; where nothing can be frozen, or there is no mark, only to let go what an earlier daemon held."""
        if not self._room.low or not self._driver.capabilities.pause:
            for live in self._held():
                await self._let_go(live)
            return
        while True:
            began = time.monotonic()
            try:
                left = await self.look()
            except HoldfastError as error:
                log.warning("disk.guard.failed", error=error.message)
                left = FASTEST
            except Exception:
                log.exception("disk.guard.failed")
                left = FASTEST
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
            await asyncio.gather(*(self._hold(live) for live in self._writers(use, max(0, left))))
        if left >= _MUCH_ROOM * self._room.low:
            for live in self._held():
                await self._let_go(live)
        for session_id in [*self._untold]:
            await self._tell(session_id, HELD, Kind.DISK_LOW)
        return left

    def _held(self) -> list[LiveSession]:
        return [live for live in self._live.all() if live.link.held is not None]

    def _writers(self, use: Mapping[str, DiskUse], left: int) -> list[LiveSession]:
        """Those that have taken more than their share; who is seen for the first time has taken nothing yet."""
        running = [live for live in self._live.all() if live.session_id in use and live.link.held is None]
        share = max(left / 2, self._room.low / _SMALL_PART) / max(1, len(running))
        return [live for live in running if self._taken(live.session_id, use) > share]

    def _taken(self, session_id: str, use: Mapping[str, DiskUse]) -> int:
        return use[session_id].taken - self._base[session_id].taken

    async def _hold(self, live: LiveSession) -> None:
        handle = self._driver.handle_for(live.session_id)
        try:
            await self._driver.pause(handle)
            hold(live)
            if self._live.get(live.session_id) is not live:  # put to sleep, or destroyed, in this moment
                live.link.let_go()
                await self._driver.resume(handle)
                return
        except HoldfastError as error:
            log.warning("session.freeze.failed", session_id=live.session_id, error=error.message)
            return
        log.error("session.frozen", session_id=live.session_id, why="disk_low", next="goes on when there is room")
        self._untold.add(live.session_id)

    async def _let_go(self, live: LiveSession) -> None:
        try:
            await self._driver.resume(self._driver.handle_for(live.session_id))
        except HoldfastError as error:
            log.warning("session.thaw.failed", session_id=live.session_id, error=error.message, next="tried again")
            return
        live.link.let_go()
        self._untold.discard(live.session_id)
        log.info("session.thawed", session_id=live.session_id, why="disk_room")
        await self._tell(live.session_id, None, Kind.DISK_ROOM)

    async def _tell(self, session_id: str, error: str | None, kind: Kind) -> None:
        """What else is wrong with it stays in its row: it is told of by whoever mends it."""
        try:
            before = (await self._store.get(session_id)).error
            with spending():
                await self._store.change(
                    session_id,
                    statuses=[Status.ACTIVE],
                    generation=None,
                    now=self._clock(),
                    values={"error": error if before in (None, HELD) else before},
                    tell=[kind],
                )
        except StaleRow:
            pass  # put to sleep, or destroyed, meanwhile
        except HoldfastError as failed:
            log.warning("session.untold", session_id=session_id, kind=kind, error=failed.message)
            return
        self._untold.discard(session_id)


def _pause(left: int, took: float) -> float:
    """Until the next look: nobody can have filled the disk by then."""
    shortest, longest = _SECONDS
    return min(longest, max(shortest, left / FASTEST, took * _IDLE))
