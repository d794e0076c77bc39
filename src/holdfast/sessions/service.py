"""The session service: what the API calls. Decides who may do what in which state; the work is done by its parts."""

import asyncio
import contextlib
import itertools
from collections.abc import Mapping, Sequence

from holdfast.callers.ceilings import Ceilings
from holdfast.callers.types import Caller
from holdfast.drivers.base import Driver
from holdfast.errors import HoldfastError, Unavailable
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from holdfast.records.machine import LIVE, PausedAs, Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.context import Context
from holdfast.sessions.copies.copying import Copying
from holdfast.sessions.copies.locations import Kept
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.copies.snapshots import Snapshots
from holdfast.sessions.copies.workspaces import Workspaces
from holdfast.sessions.create.choices import choose_limits
from holdfast.sessions.create.creation import Creation
from holdfast.sessions.create.planning import Planning
from holdfast.sessions.life import Life
from holdfast.sessions.operations import Operations
from holdfast.sessions.pool.keeper import PoolKeeper
from holdfast.sessions.pool.warmth import Warmer
from holdfast.sessions.session import Session, Sessions, unusable
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.sleep import Sleep
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.types import Clock, CreateRequest, ExecRequest, ExecResult, ForkRequest, SessionStats
from holdfast.sessions.use.execs import Execs
from holdfast.sessions.use.files import SessionFiles
from holdfast.sessions.use.ports import Ports
from holdfast.sessions.use.processes import Processes
from holdfast.sessions.watch.clock import ClockWatch
from holdfast.sessions.watch.disk_guard import DiskGuard
from holdfast.sessions.watch.housekeeping import Housekeeping
from holdfast.sessions.watch.marks import Marks
from holdfast.sessions.watch.room import Room
from holdfast.sessions.watch.strays import Strays
from holdfast.sessions.ways_out import WayOut, WaysOut
from holdfast.store import SessionStore

_DESTROY = "destroy:"
_REVIVE = "revive:"
_STATS_SECONDS = 10.0
"""The driver reads these facts from memory; if that takes longer, a disk hangs."""
_STATS_AT_ONCE = 4
"""A list of a thousand sessions must not take all threads from creates and file calls."""


class SessionService:
    """Sessions of this node. Use ``running()`` around its use: it adopts what is there and keeps watch."""

    def __init__(
        self,
        store: SessionStore,
        driver: Driver,
        images: ImageStore,
        hub: LinkHub,
        shells: SavedShells,
        kept: Kept,
        settings: SessionSettings,
        *,
        node: str,
        link_key: bytes,
        clock: Clock,
        metrics: SessionMetrics,
        way_out: WayOut | None = None,
        steady: Clock | None = None,
    ) -> None:
        """``steady`` is a clock that nobody can set; without one, ``clock`` is believed whatever it says."""
        self.room = Room(kept.root, settings.low_disk_bytes, metrics)
        self._context = context = Context(
            store=store,
            driver=driver,
            images=images,
            hub=hub,
            shells=shells,
            kept=kept,
            settings=settings,
            node=node,
            link_key=link_key,
            clock=clock,
            watch=ClockWatch(clock, steady, kept.root / "clock.json"),
            metrics=metrics,
            way_out=way_out or WaysOut(),
            marks=Marks(kept.mark_dir),
            room=self.room,
            operations=Operations(),
            on_hang_up=self._on_hang_up,
        )
        self._sessions = sessions = Sessions(context)
        self._sleep = sleep = Sleep(context, sessions)
        copying = Copying(context, sessions, sleep)
        self._life = life = Life(context, sessions, copying)
        self._planning = Planning(context, copying)
        self._pool = PoolKeeper(context, life, self._planning)
        self._creation = Creation(context, sessions, self._planning, life, self._pool, copying)
        self._told = itertools.count()
        self._stats_turns = asyncio.Semaphore(_STATS_AT_ONCE)
        self.files = SessionFiles(sleep, self.room, settings.max_file_bytes)
        self.commands = Execs(context, sleep)
        self.processes = Processes(sleep)
        self.ports = Ports(sleep)
        self.strays = strays = Strays(context, sessions, life, sleep, copying)
        self.snapshots = Snapshots(context, sessions, copying, strays)
        self.workspaces = Workspaces(context, strays)
        guard = DiskGuard(context, sessions, sleep)
        self._housekeeping = Housekeeping(
            context, sessions, life, sleep, self._pool, strays, self.snapshots, self.workspaces, guard
        )

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Take up what an earlier daemon left, then watch over it until the end."""
        return self._housekeeping.running()

    def _on_hang_up(self, session_id: str) -> None:
        if not self._pool.lost(session_id):
            self._housekeeping.hung_up(session_id)

    @property
    def clock_is_doubtful(self) -> bool:
        """Whether the wall clock was set lately, also while no daemon ran, so that what looks old may not be."""
        return self._context.watch.is_doubtful

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def create(self, req: CreateRequest, *, idempotency_key: str | None, caller: Caller) -> SessionRow:
        row = await self._creation.create(req, idempotency_key=idempotency_key, caller=caller)
        return self._sessions.refreshed(row)

    def warm_by(self, kind: str, warmer: Warmer) -> None:
        """Who makes pooled sandboxes of this kind (of ``SessionSettings.warm_pool``) ready for more than commands."""
        self._pool.warm_by(kind, warmer)

    def check_limits(self, req: CreateRequest, ceilings: Ceilings) -> None:
        """Raises ``LimitOutOfRange`` if a key with these ceilings would be refused a session with these limits."""
        choose_limits(req, self._context.settings, ceilings)

    async def fork(
        self, session_id: str, req: ForkRequest, /, *, idempotency_key: str | None, caller: Caller
    ) -> tuple[SessionRow, SnapshotKind]:
        """Copy a session as it is now; return the copy and what came back in it. The original goes on as before."""
        row = await self._creation.fork(session_id, req, idempotency_key=idempotency_key, caller=caller)
        return self._sessions.refreshed(row), row.spec.restored or SnapshotKind.FILES

    async def admit(self, session_id: str, caller: Caller, /) -> None:
        """Return if the caller may know of this session; else raise ``SessionNotFound``, as if there were none."""
        await self._sessions.admit(session_id, caller)

    async def get(self, session_id: str, /) -> SessionRow:
        return self._sessions.refreshed(await self._context.store.get(session_id))

    def awake(self) -> Sequence[Session]:
        """Return the sessions that can be used this moment on this host."""
        return self._sessions.all()

    async def list(
        self, *, status: Sequence[Status] | None, limit: int, cursor: str | None, caller: Caller
    ) -> tuple[list[SessionRow], str | None]:
        """Return what the caller may see, newest first. Without ``status``: all that are not destroyed."""
        owner, statuses = None if caller.sees_all else caller.owner, status or list(LIVE)
        rows = await self._context.store.page(statuses=statuses, limit=limit + 1, after=cursor, owner=owner)
        more = rows[limit - 1].id if len(rows) > limit else None
        return [self._sessions.refreshed(row) for row in rows[:limit]], more

    async def stats(self, session_id: str, /) -> SessionStats:
        """Read what an active session uses now. This does not count as a use."""
        row = await self._sessions.own_row(session_id)
        if row.status != Status.ACTIVE:
            raise unusable(row)
        return await self._read_stats(row)

    async def stats_of(self, rows: Sequence[SessionRow], /) -> Mapping[str, SessionStats]:
        """Read what those of these sessions use that are active here, by id. What cannot be read is left out."""
        here = [row for row in rows if row.status is Status.ACTIVE and row.node == self._context.node]
        found = await asyncio.gather(*(self._try_to_read_stats(row) for row in here))
        return {row.id: stats for row, stats in zip(here, found, strict=True) if stats is not None}

    async def _try_to_read_stats(self, row: SessionRow) -> SessionStats | None:
        with contextlib.suppress(HoldfastError):
            return await self._read_stats(row)
        return None

    async def _read_stats(self, row: SessionRow) -> SessionStats:
        """Raises ``SandboxNotFound`` if there is no sandbox, ``Unavailable`` if it takes too long."""
        driver, limits = self._context.driver, row.spec.limits
        try:
            async with self._stats_turns, asyncio.timeout(_STATS_SECONDS):
                facts = await driver.stats(driver.handle_for(row.id))
        except TimeoutError:
            trouble = f"what {row.id} uses could not be read within {_STATS_SECONDS:.0f} s; try again"
            raise Unavailable(trouble) from None
        enforced = driver.capabilities
        return SessionStats(
            cpu_seconds=facts.cpu_seconds,
            cpu_limit=limits.cpus if enforced.cpu_limit else None,
            memory_bytes=facts.memory_bytes,
            memory_peak_bytes=facts.memory_peak_bytes,
            memory_limit_bytes=limits.memory_mb << 20 if enforced.memory_limit else None,
            disk_bytes=facts.disk_bytes,
            disk_limit_bytes=facts.disk_limit_bytes,
            processes=facts.processes,
            processes_limit=limits.pids if enforced.pids_limit else None,
            oom_kills=facts.oom_kills,
            uptime_seconds=max(0.0, self._context.clock() - row.created_at),
        )

    async def destroy(self, session_id: str, /) -> None:
        """Destroy a session from any state. Share a destroy that is under way; wait for a create that is."""
        operations = self._context.operations
        row = await self._context.store.get(session_id)
        if row.status == Status.CREATING:
            await operations.wait(session_id)
        await operations.share(_DESTROY + session_id, lambda: self._life.take_down(session_id, Reason.REQUESTED))

    # -- sleep -------------------------------------------------------------------------------------------------------

    async def pause(self, session_id: str, how: PausedAs | None, /) -> SessionRow:
        """Put a session to sleep, refused while it is in use. None for ``how`` is the best way to hold no process."""
        operations = self._context.operations
        await operations.wait(session_id)
        row = await operations.share(session_id, lambda: self._sleep.pause(session_id, how))
        return self._sessions.refreshed(row)

    async def wake(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionRow, PausedAs | None]:
        """Wake a session, and say what came back; ``FILES`` gives up memory that was kept. Callers share one wake."""
        row, came_as = await self._sleep.share_wake(session_id, how)
        return self._sessions.refreshed(row), came_as

    async def revive(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionRow, PausedAs | None]:
        """Wake a session as ``wake`` does; bring back one that is in error from its files."""
        row = await self._sessions.own_row(session_id)
        if row.status != Status.ERROR:
            return await self.wake(session_id, how)
        row = await self._context.operations.share(_REVIVE + session_id, lambda: self._sleep.revive(session_id))
        return self._sessions.refreshed(row), PausedAs.FILES

    def tell(self, kind: EventKind, session_id: str, data: Mapping[str, object], /) -> None:
        """Add an event of a session that is awake here, without waiting for it."""
        session = self._sessions.live(session_id)
        if session is None:
            return
        context, owner = self._context, session.record.owner

        async def record() -> None:
            await context.store.events.record(kind, session_id, data=data, now=context.clock(), owner=owner)

        key = f"tell:{kind}:{session_id}:{next(self._told)}"  # of its own: none is left out for another
        context.operations.attempt(key, "event.failed", record, session_id=session_id)

    # -- use ---------------------------------------------------------------------------------------------------------

    async def exec(self, session_id: str, req: ExecRequest, /, *, idempotency_key: str | None) -> ExecResult:
        return await self.commands.run(session_id, req, idempotency_key=idempotency_key)

    async def exec_result(self, session_id: str, exec_id: str, /) -> ExecResult:
        return await self.commands.result(session_id, exec_id)

    async def write_file(self, session_id: str, path: str, data: bytes, /, *, mode: int | None) -> None:
        await self.files.write(session_id, path, data, mode=mode)

    async def read_file(self, session_id: str, path: str, /, *, max_bytes: int | None) -> tuple[bytes, bool]:
        return await self.files.read(session_id, path, max_bytes=max_bytes)
