"""What is done by itself: activity is saved each second; on each tick sessions expire and go to sleep, rows are
compared with facts, and what nobody needs any more is removed.

At start and on every tick what was left half done is finished:

| row            | sandbox            | what is done                                            |
| -------------- | ------------------ | ------------------------------------------------------- |
| creating       | any                | the create is finished (or given up, and cleaned)       |
| active         | running            | adopted, if this daemon has no link to it yet           |
| active         | paused             | it goes on: a daemon without its row had set it aside;  |
|                |                    | if the row says so, it waits for room (``disk_guard``)  |
| active         | stopped or absent  | ``error`` with reason ``crashed``                       |
| pausing        | any                | finished if it sleeps already, else it goes on          |
| paused         | absent, or dead    | ``error`` with reason ``crashed``                       |
| resuming       | any                | it is woken; if that fails it sleeps on                 |
| destroying     | any                | the destroy is finished                                 |
| destroyed      | any                | the sandbox is removed                                  |
| none           | any                | set aside if it was a session's once (``strays``); else |
|                |                    | removed, unless it waits in the pool                    |

A look-up that fails changes nothing: absence is believed only when the driver has listed everything.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from holdfast.concurrency import cancel_and_wait, every
from holdfast.drivers.base import SandboxInfo, SandboxState
from holdfast.errors import DiskFull, DriverError, HoldfastError, SandboxNotFound
from holdfast.records.machine import LIVE, PausedAs, Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.records.sleep import SleepFacts, SleepState, SleepStep, due
from holdfast.sessions.context import Context
from holdfast.sessions.copies.snapshots import Snapshots
from holdfast.sessions.copies.workspaces import Workspaces
from holdfast.sessions.life import Life
from holdfast.sessions.pool.keeper import PoolKeeper
from holdfast.sessions.session import Sessions
from holdfast.sessions.sleep import Sleep
from holdfast.sessions.watch.disk_guard import HELD, DiskGuard, hold
from holdfast.sessions.watch.strays import Strays

log = structlog.get_logger(__name__)

_SAVE_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
_ASLEEP = (Status.PAUSING, Status.PAUSED, Status.RESUMING)
_LOOK_AGAIN_SECONDS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""How long to wait before each look at a sandbox whose runner has hung up. After that the tick looks."""
_MAY_EXPIRE = (Status.ACTIVE, Status.PAUSED, Status.ERROR)
_BATCH = 100


@dataclass(eq=False)
class Housekeeping:
    """Of one node. Use ``running`` around the use of its sessions."""

    _context: Context
    _sessions: Sessions
    _life: Life
    _sleep: Sleep
    _pool: PoolKeeper
    _strays: Strays
    _snapshots: Snapshots
    _workspaces: Workspaces
    disk_guard: DiskGuard
    _to_move: float = 0.0
    _hung_up: set[str] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take up what an earlier daemon left, then watch over it until the end."""
        await self._strays.catch_up()
        await self._look_at_the_clock()  # before anything seems to be old
        await self.reconcile()
        await self._clean_kept()
        interval = self._context.settings.reap_interval_seconds
        watchers = [
            asyncio.create_task(every(_SAVE_SECONDS, self.save_activity, on_failure="watch.failed")),
            asyncio.create_task(every(interval, self.tick, on_failure="watch.failed")),
            asyncio.create_task(self.disk_guard.run()),
            asyncio.create_task(self._pool.run()),
        ]
        try:
            yield
        finally:
            await cancel_and_wait(*watchers)
            await self._context.operations.close(_CLOSE_SECONDS)
            await self._pool.close()
            with contextlib.suppress(HoldfastError):
                await self.save_activity()
            await self._context.hub.shut_down()
            for session in self._sessions.all():
                self._sessions.forget(session.id)

    async def tick(self) -> None:
        """Each part for itself: where one finds no room to write, the next may be what makes some."""
        for part in (
            self.reap,
            self._put_to_sleep,
            self._look_around,
            self.reconcile,
            self.disk_guard.mend,
            self._prune,
            self._pool.refresh,
            self._clean_images,
            self._clean_kept,
        ):
            try:
                await part()
            except HoldfastError as error:
                log.warning("watch.failed", work=part.__qualname__, code=error.code, error=error.message)

    # -- sessions that nobody uses -------------------------------------------------------------------------------------

    async def save_activity(self) -> None:
        """Write down what was used since the last time."""
        rows = self._sessions.take_unsaved()
        try:
            await self._context.store.touch(rows)
        except HoldfastError:
            for session in filter(None, (self._sessions.live(row[0]) for row in rows)):
                session.unsaved = True
            raise
        if rows:
            await self._context.marks.touch([(row[0], row[1]) for row in rows])

    async def reap(self) -> None:
        """Destroy what has expired. The claim repeats the condition in the UPDATE: what was just used stays."""
        now = await self._look_at_the_clock()
        for session in self._sessions.all():
            if session.busy:  # it does not expire, however long that takes
                session.touch(now)
        with contextlib.suppress(DiskFull):  # who was used is known here, too; who expires makes room
            await self.save_activity()
        operations, node = self._context.operations, self._context.node
        for row in await self._context.store.expired(statuses=_MAY_EXPIRE, node=node, now=now, limit=_BATCH):
            live = self._sessions.live(row.id)
            if live is not None and live.expires_at > now:
                continue  # used since it was written down
            if not operations.running(row.id) and await self._life.claim_expired(row, now):
                log.info("session.expired", session_id=row.id)
                destroy = partial(self._life.take_down, row.id, Reason.EXPIRED)
                operations.attempt(row.id, "reap", destroy, session_id=row.id)

    async def _look_at_the_clock(self) -> float:
        """Return what time it is. Where the clock was set, sessions keep the time that they had left."""
        look = self._context.watch.look()
        self._to_move += look.jumped  # also by what could not be written the last time
        if self._to_move:
            seconds = self._to_move
            await self._context.store.move_times(node=self._context.node, seconds=seconds, now=look.now)
            self._to_move -= seconds
            for session in self._sessions.all():
                session.move_times(seconds, look.now)
        await asyncio.to_thread(self._context.watch.note)
        return look.now

    async def _put_to_sleep(self) -> None:
        """Whoever has been idle, or frozen, for as long as their policy says."""
        operations = self._context.operations
        for row in await self._context.store.by_status((Status.ACTIVE, Status.PAUSED), node=self._context.node):
            how = self._choose_sleep(row)
            if how is not None and not operations.running(row.id):
                operations.attempt(row.id, "sleep", partial(self._sleep.pause, row.id, how), session_id=row.id)

    def _choose_sleep(self, row: SessionRow) -> PausedAs | None:
        """Return how it is to sleep from now on; None: as it is. Its destruction is a matter of ``expires_at``."""
        session = self._sessions.live(row.id)
        if row.status == Status.PAUSED:
            state = SleepState.PAUSED if row.paused_as == PausedAs.FROZEN else SleepState.HIBERNATED
            facts = SleepFacts(state, row.last_activity_at, row.paused_at)
        elif session is None or session.busy:
            return None
        else:
            facts = SleepFacts(SleepState.AWAKE, session.last_activity_at)
        steps = due(row.spec.sleep, facts, self._context.clock())
        if SleepStep.PAUSE in steps and self._sleep.can(PausedAs.FROZEN):
            return PausedAs.FROZEN
        return self._sleep.deepest if {SleepStep.PAUSE, SleepStep.HIBERNATE} & set(steps) else None

    # -- rows against facts --------------------------------------------------------------------------------------------

    async def reconcile(self) -> None:
        """Compare once. Rows are read before sandboxes: what was made in between is looked up once more."""
        rows = await self._context.store.by_status(LIVE, node=self._context.node)
        try:
            found = await self._context.driver.list()
        except HoldfastError as error:
            log.warning("reconcile.list.failed", error=error.message, next="nothing is changed; tried again next tick")
            return
        facts = {info.session_id: info for info in found}
        for row in rows:
            await self._settle(row, facts.get(row.id))
        await self._settle_strays([info for info in found if info.session_id not in {row.id for row in rows}])
        await self._strays.refresh_marks(found)

    async def _settle(self, row: SessionRow, fact: SandboxInfo | None) -> None:
        if self._context.operations.running(row.id):
            return
        try:
            if row.status == Status.CREATING:
                self._life.finish_create(row)
            elif row.status == Status.DESTROYING:
                destroy = partial(self._life.take_down, row.id, Reason.REQUESTED)
                self._context.operations.attempt(row.id, "reconcile.destroy", destroy, session_id=row.id)
            elif row.status == Status.ACTIVE:
                await self._settle_active(row, fact)
            elif row.status in _ASLEEP:
                settle = partial(self._settle_sleeper, row, fact)
                self._context.operations.attempt(row.id, "reconcile", settle, session_id=row.id, status=row.status)
        except HoldfastError as error:
            log.warning("reconcile.failed", session_id=row.id, status=row.status, error=error.message)

    async def _settle_active(self, row: SessionRow, fact: SandboxInfo | None) -> None:
        if fact is None or fact.state is SandboxState.STOPPED:
            await self._found_dead(row.id)  # looks again, also for what it died of
        elif self._sessions.live(row.id) is None:
            waits = row.error == HELD and self._context.driver.capabilities.pause
            if waits:
                await self._context.driver.pause(fact.handle)
            elif fact.state is SandboxState.PAUSED:
                await self._context.driver.resume(fact.handle)
            await self._life.adopt(row.id)
            live = self._sessions.live(row.id)
            if waits and live is not None:
                hold(live)
            log.info("session.adopted", session_id=row.id)

    async def _settle_sleeper(self, row: SessionRow, fact: SandboxInfo | None) -> None:
        died_of = await self._sleep.settle(row, fact)
        if died_of is not None:
            await self._life.mark_crashed(row.id, died_of)

    async def _settle_strays(self, strays: Sequence[SandboxInfo]) -> None:
        for stray in strays:
            try:
                if self._pool.owns(stray.session_id):  # asked before the row: who is claimed has one by then
                    continue
                row = await self._sessions.find_row(stray.session_id)
                if row is not None and row.status != Status.DESTROYED:
                    continue
                if row is None and await self._strays.keep(stray):
                    continue
                log.warning("reconcile.stray.removed", session_id=stray.session_id)
                await self._life.remove_stray(stray.session_id)
            except HoldfastError as error:
                log.warning("reconcile.stray.failed", session_id=stray.session_id, error=error.message)

    def hung_up(self, session_id: str) -> None:
        """A runner has: find out whether its sandbox died. A runner that only lost us dials again at once.

        An investigation that is under way may have looked too early, or at one before this.
        """
        self._hung_up.add(session_id)
        investigate = partial(self._investigate, session_id)
        self._context.operations.attempt(f"investigate:{session_id}", "investigate", investigate, session_id=session_id)

    async def _investigate(self, session_id: str) -> None:
        while session_id in self._hung_up:
            self._hung_up.discard(session_id)
            await self._look_into(session_id)

    async def _look_into(self, session_id: str) -> None:
        """A dying sandbox hangs up before it is dead, so we look again until it is, or until its runner is back."""
        for seconds in _LOOK_AGAIN_SECONDS:
            await asyncio.sleep(seconds)
            live = self._sessions.live(session_id)
            if live is None and await self._is_coming(session_id):
                continue
            if live is None or live.link.connected or await self._found_dead(session_id):
                return

    async def _is_coming(self, session_id: str) -> bool:
        """Say whether it is still being made, or woken: when it is there, it may be dead already."""
        if self._context.operations.running(session_id):
            return True
        row = await self._sessions.find_row(session_id)
        return row is not None and row.status == Status.RESUMING

    async def _found_dead(self, session_id: str) -> bool:
        try:
            info = await self._context.driver.inspect(self._context.driver.handle_for(session_id))
            dead, oom = info.state is SandboxState.STOPPED, info.oom_killed
            detail = "it ran out of memory" if oom else "its processes have ended"
        except SandboxNotFound:
            dead, oom, detail = True, False, "it is gone"
        except DriverError as error:
            log.warning("investigate.failed", session_id=session_id, error=error.message)
            return False
        if dead:
            row = await self._context.store.get(session_id)
            if row.status == Status.ACTIVE:
                await self._life.mark_crashed(session_id, detail, oom=oom)
            return row.status != Status.RESUMING
        return False

    # -- the rest ------------------------------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        for session in self._sessions.all():
            session.oom.look()  # also where no command runs: something in the background may have been killed
        await self._context.room.look()

    async def _prune(self) -> None:
        """Forget rows that were destroyed, and events that happened, long ago."""
        if self._context.watch.is_doubtful:
            return
        now, settings = self._context.clock(), self._context.settings
        if count := await self._context.store.prune_destroyed(now - settings.keep_destroyed_seconds):
            log.info("sessions.pruned", count=count)
        if count := await self._context.store.events.prune(now - settings.event_retention_seconds):
            log.info("events.pruned", count=count)

    async def _clean_images(self) -> None:
        """Remove trees of replaced images that no session uses any more."""
        rows = await self._context.store.by_status(LIVE, node=self._context.node)
        layouts = [*self._pool.layouts(), *(row.spec.layout for row in rows), *await self._strays.layouts()]
        await self._context.images.clean([Path(layout) for layout in layouts if layout])

    async def _clean_kept(self) -> None:
        """What an earlier daemon, or a failure, has left half done."""
        self._snapshots.tick()
        await self._workspaces.tick()
