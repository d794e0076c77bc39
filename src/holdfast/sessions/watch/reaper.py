"""Destroying what has expired. The claim repeats the condition in the UPDATE: what was just used stays."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

import structlog

from holdfast.errors import DiskFull, HoldfastError
from holdfast.records.machine import PausedAs, Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.lifecycle import Lifecycle
from holdfast.sessions.live import Clock, LiveSessions
from holdfast.sessions.operations import Operations
from holdfast.sessions.sleep import Sleep
from holdfast.sessions.watch.clock import ClockWatch
from holdfast.sessions.watch.marks import Marks
from holdfast.store import SessionStore

log = structlog.get_logger(__name__)

_MAY_EXPIRE = (Status.ACTIVE, Status.PAUSED, Status.ERROR)
_BATCH = 100


class Reaper:
    """One node's expired sessions."""

    def __init__(
        self,
        store: SessionStore,
        lifecycle: Lifecycle,
        sleep: Sleep,
        live: LiveSessions,
        operations: Operations,
        marks: Marks,
        watch: ClockWatch,
        *,
        node: str,
        clock: Clock,
    ) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._sleep = sleep
        self._live = live
        self._operations = operations
        self._marks = marks
        self._watch = watch
        self._to_move = 0.0
        self._node = node
        self._clock = clock

    async def save_activity(self) -> None:
        """Write down what was used since the last time."""
        rows = self._live.take_unsaved()
        try:
            await self._store.touch(rows)
        except HoldfastError:
            self._live.put_back(rows)
            raise
        if rows:
            await self._marks.touch([(row[0], row[1]) for row in rows])

    async def tick(self) -> None:
        now = await self.look_at_the_clock()
        self._live.touch_busy(now)
        with contextlib.suppress(DiskFull):  # who was used is known here, too; who expires makes room
            await self.save_activity()
        overdue = await self._store.expired(statuses=_MAY_EXPIRE, node=self._node, now=now, limit=_BATCH)
        for row in overdue:
            live = self._live.get(row.id)
            if live is not None and live.expires_at > now:
                continue  # used since it was written down
            if not self._operations.running(row.id) and await self._lifecycle.claim_expired(row, now):
                log.info("session.expired", session_id=row.id)
                self._operations.spawn(row.id, self._destroyer(row.id))

    async def look_at_the_clock(self) -> float:
        """What time it is. Where the clock was set, sessions keep the time that they had left."""
        look = self._watch.look()
        self._to_move += look.jumped  # also by what could not be written the last time
        if self._to_move:
            seconds = self._to_move
            await self._store.move_times(node=self._node, seconds=seconds, now=look.now)
            self._to_move -= seconds
            self._live.move_times(seconds, look.now)
        await asyncio.to_thread(self._watch.note)
        return look.now

    async def put_to_sleep(self) -> None:
        """Whoever has been idle, or frozen, for as long as their policy says."""
        for row in await self._store.by_status((Status.ACTIVE, Status.PAUSED), node=self._node):
            how = self._due(row)
            if how is not None and not self._operations.running(row.id):
                self._operations.spawn(row.id, self._sleeper(row.id, how))

    def _due(self, row: SessionRow) -> PausedAs | None:
        policy, now, live = row.spec.sleep, self._clock(), self._live.get(row.id)
        if row.status == Status.PAUSED:
            after, since = policy.hibernate_after_seconds, row.paused_at
            frozen = row.paused_as == PausedAs.FROZEN
            due = frozen and after is not None and since is not None and since + after <= now
            return self._sleep.deepest if due else None
        if live is None or live.users or policy.pause_after_seconds is None:
            return None
        if live.last_activity_at + policy.pause_after_seconds > now:
            return None
        return PausedAs.FROZEN if self._sleep.can(PausedAs.FROZEN) else self._sleep.deepest

    def _sleeper(self, session_id: str, how: PausedAs) -> Callable[[], Coroutine[object, object, None]]:
        async def sleep() -> None:
            try:
                await self._sleep.pause(session_id, how)
            except HoldfastError as error:
                log.warning("sleep.failed", session_id=session_id, error=error.message, next="tried again next tick")

        return sleep

    def _destroyer(self, session_id: str) -> Callable[[], Coroutine[object, object, None]]:
        async def destroy() -> None:
            try:
                await self._lifecycle.take_down(session_id, Reason.EXPIRED)
            except HoldfastError as error:
                log.warning("reap.failed", session_id=session_id, error=error.message, next="tried again next tick")

        return destroy

    async def prune(self, before: float) -> None:
        """Forget rows that were destroyed long ago."""
        count = await self._store.prune_destroyed(before)
        if count:
            log.info("sessions.pruned", count=count)

    async def prune_events(self, before: float) -> None:
        """Forget events that happened long ago."""
        count = await self._store.events.prune(before)
        if count:
            log.info("events.pruned", count=count)
