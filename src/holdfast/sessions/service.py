"""The session service: what the API calls. Decides who may do what in which state; the work is done by its parts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import structlog

from holdfast.callers.ceilings import Ceilings
from holdfast.callers.types import Caller
from holdfast.drivers.base import Driver
from holdfast.errors import BadInput, HoldfastError, TooLarge
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from holdfast.records.machine import LIVE, PausedAs, Reason, Status
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.copies.captures import Captures
from holdfast.sessions.copies.locations import Kept
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.copies.snapshots import Snapshots
from holdfast.sessions.copies.workspaces import Workspaces
from holdfast.sessions.create.creation import Creation
from holdfast.sessions.create.origins import KeptOrigins
from holdfast.sessions.create.planning import Planning
from holdfast.sessions.ids import exec_id_for, new_exec_id
from holdfast.sessions.lifecycle import Lifecycle
from holdfast.sessions.live import Clock, LiveSession, LiveSessions, in_use
from holdfast.sessions.operations import Operations, reporting
from holdfast.sessions.owners import Owners
from holdfast.sessions.pool.keeper import PoolKeeper
from holdfast.sessions.pool.pool import Pool
from holdfast.sessions.pool.warmth import Borrowed, Warmer
from holdfast.sessions.refusals import unusable
from holdfast.sessions.row_steps import RowSteps
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.sleep import Sleep
from holdfast.sessions.spec import choose_timeout
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.types import (
    DEFAULT_SHELL,
    CreateRequest,
    ExecRequest,
    ExecResult,
    ForkRequest,
    SessionStats,
    SessionView,
)
from holdfast.sessions.use import calls
from holdfast.sessions.use.commands import Commands
from holdfast.sessions.use.files import SessionFiles
from holdfast.sessions.use.oom import judged
from holdfast.sessions.use.ports import Ports
from holdfast.sessions.use.processes import Processes
from holdfast.sessions.use.usage import Usage
from holdfast.sessions.views import Views
from holdfast.sessions.watch.clock import ClockWatch
from holdfast.sessions.watch.disk_guard import DiskGuard
from holdfast.sessions.watch.disks import DiskWatch
from holdfast.sessions.watch.marks import Marks
from holdfast.sessions.watch.reaper import Reaper
from holdfast.sessions.watch.reconciler import Reconciler
from holdfast.sessions.watch.room import Room
from holdfast.sessions.watch.strays import Strays
from holdfast.sessions.ways_out import NoWayOut, WayOut
from holdfast.store import SessionStore

log = structlog.get_logger(__name__)

_SAVE_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
_DESTROY = "destroy:"
_WAKE = "wake:"
_REVIVE = "revive:"
_CAN_WAKE = (Status.ACTIVE, Status.PAUSED, Status.PAUSING, Status.RESUMING)
"""Also ``active``: the row says so a moment before it can be used."""


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
        self._store = store
        self._images = images
        self._hub = hub
        self._settings = settings
        self._node = node
        self._clock = clock
        self._metrics = metrics
        self._watch = ClockWatch(clock, steady, kept.root / "clock.json")
        self._live = LiveSessions()
        self._owners = Owners(store)
        self._operations = Operations()
        out: WayOut = way_out or NoWayOut()
        self._marks = Marks(kept.mark_dir)
        self.room = Room(kept.root, settings.low_disk_bytes, metrics)
        rows = RowSteps(store, settings, node=node, clock=clock)
        self._lifecycle = Lifecycle(
            store,
            driver,
            images,
            hub,
            self._live,
            rows,
            settings,
            node=node,
            link_key=link_key,
            clock=clock,
            metrics=metrics,
            way_out=out,
            workspaces=kept.workspace_dir,
            marks=self._marks,
        )
        self._sleep = Sleep(
            store,
            driver,
            hub,
            self._live,
            self._lifecycle,
            rows,
            shells,
            clock=clock,
            connect_seconds=settings.connect_seconds,
        )
        own = kept.snapshot_dir(node)
        captures = Captures(driver, hub, self._lifecycle, rows, shells, own, kept.shared)
        forks = Captures(driver, hub, self._lifecycle, rows, shells, kept.fork_dir)
        self._origins = KeptOrigins(
            captures, forks, self._operations, self._sleep, lambda: driver.capabilities.memory_copies
        )
        self._lifecycle.origins = self._origins
        self._lifecycle.forget = self._forget
        self._planning = Planning(driver, images, captures, self.room, settings, node=node, clock=clock, way_out=out)
        pool = Pool({**settings.pool, **settings.warm_pool})
        self._pool = PoolKeeper(
            pool,
            self._lifecycle,
            self._operations,
            self._planning.plain,
            Borrowed(self._lifecycle.lend, clock, self.room),
            settings.warm_pool,
            max_live=settings.max_sessions,
            metrics=metrics,
        )
        self.strays = Strays(
            store,
            kept.snapshots,
            kept.workspaces,
            driver,
            self._lifecycle,
            self._sleep,
            captures,
            self._operations,
            self._marks,
            settings,
            metrics,
            node=node,
            clock=clock,
            watch=self._watch,
        )
        self._reconciler = Reconciler(
            store,
            driver,
            self._lifecycle,
            self._sleep,
            self._live,
            self._operations,
            node=node,
            is_pooled=pool.owns,
            strays=self.strays,
        )
        self._reaper = Reaper(
            store,
            self._lifecycle,
            self._sleep,
            self._live,
            self._operations,
            self._marks,
            self._watch,
            node=node,
            clock=clock,
        )
        self._disk_watch = DiskWatch(store, driver, self._sleep, self._operations, self.room, clock=clock)
        self._disk_guard = DiskGuard(store, driver, self._live, self.room, metrics, clock=clock)
        self._creation = Creation(
            store,
            kept.snapshots,
            self._planning,
            self._lifecycle,
            self._pool,
            self._reconciler,
            captures,
            self._operations,
            settings,
            metrics,
        )
        self._views = Views(store, self._live, Usage(driver, clock), node=node)
        metrics.live.set_function(self._live.count)
        self._lifecycle.on_disconnect = self._on_disconnect
        self._lifecycle.on_oom = self._on_oom
        self.files = SessionFiles(self._usable, clock, self.room)
        self.commands = Commands(self._usable, self._operations, settings, clock, self._count)
        self.processes = Processes(self._usable, clock)
        self.ports = Ports(self._usable, clock)
        self.snapshots = Snapshots(
            store,
            kept.snapshots,
            driver,
            captures,
            forks,
            self._operations,
            settings,
            self._marks,
            self.strays,
            self.room,
            node=node,
            clock=clock,
        )
        self.workspaces = Workspaces(
            kept.workspaces, driver, self._operations, self._marks, self.strays, kept.workspace_dir, node=node
        )

    # -- running -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take up what an earlier daemon left, then watch over it until the end."""
        await self.strays.catch_up()
        await self._reaper.look_at_the_clock()  # before anything seems to be old
        await self._reconciler.tick()
        await self._clean_kept()
        watchers = [
            asyncio.create_task(self._every(_SAVE_SECONDS, self._reaper.save_activity)),
            asyncio.create_task(self._every(self._settings.reap_interval_seconds, self._tick)),
            asyncio.create_task(self._disk_guard.run()),
            asyncio.create_task(self._pool.run()),
        ]
        try:
            yield
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            await self._operations.close(_CLOSE_SECONDS)
            await self._pool.close()
            with contextlib.suppress(HoldfastError):
                await self._reaper.save_activity()
            await self._hub.shut_down()
            self._live.close()

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """For ever. One failure is logged and does not end the watch."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except HoldfastError as error:
                log.warning("watch.failed", work=work.__qualname__, code=error.code, error=error.message)
            except Exception:
                log.exception("watch.failed", work=work.__qualname__)

    async def _tick(self) -> None:
        """Each part for itself: where one finds no room to write, the next may be what makes some."""
        for part in (
            self._reaper.tick,
            self._reaper.put_to_sleep,
            self._look_around,
            self._reconciler.tick,
            self._disk_watch.tick,
            self._prune,
            self._pool.refresh,
            self._clean_images,
            self._clean_kept,
        ):
            try:
                await part()
            except HoldfastError as error:
                log.warning("watch.failed", work=part.__qualname__, code=error.code, error=error.message)

    async def _look_around(self) -> None:
        self._live.look_for_kills()
        await self.room.look()

    @property
    def clock_is_doubtful(self) -> bool:
        """Whether the wall clock was set lately, also while no daemon ran, so that what looks old may not be."""
        return self._watch.is_doubtful

    async def _prune(self) -> None:
        if self._watch.is_doubtful:
            return
        await self._reaper.prune(self._clock() - self._settings.keep_destroyed_seconds)
        await self._reaper.prune_events(self._clock() - self._settings.event_retention_seconds)

    async def _clean_kept(self) -> None:
        """What an earlier daemon, or a failure, has left half done."""
        self.snapshots.tick()
        await self.workspaces.tick()

    async def _forget(self, session_id: str) -> None:
        """What is kept outside of a sandbox, when it is gone."""
        await self._sleep.forget(session_id)
        await self._origins.forget(session_id)

    async def _clean_images(self) -> None:
        """Remove trees of replaced images that no session uses any more."""
        rows = await self._store.by_status(LIVE, node=self._node)
        layouts = [*self._pool.layouts(), *(row.spec.layout for row in rows)]
        layouts += await self.strays.layouts()
        await self._images.clean([Path(layout) for layout in layouts if layout])

    def _on_disconnect(self, session_id: str) -> None:
        if self._pool.lost(session_id):
            return
        self._reconciler.hung_up(session_id)
        investigate = reporting("investigate", lambda: self._reconciler.investigate(session_id), session_id=session_id)
        self._operations.spawn(f"investigate:{session_id}", investigate)

    def _on_oom(self, session_id: str, kills: int) -> None:
        tell = reporting("oom.event", lambda: self._lifecycle.tell_oom(session_id, kills), session_id=session_id)
        self._operations.spawn(f"oom:{session_id}", tell)

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def create(self, req: CreateRequest, *, idempotency_key: str | None, caller: Caller) -> SessionView:
        return self._views.of(await self._creation.create(req, idempotency_key=idempotency_key, caller=caller))

    def warm_by(self, kind: str, warmer: Warmer) -> None:
        """Who makes pooled sandboxes of this kind (of ``SessionSettings.warm_pool``) ready for more than commands."""
        self._pool.warm_by(kind, warmer)

    def check_limits(self, req: CreateRequest, ceilings: Ceilings) -> None:
        """Raises ``LimitOutOfRange`` if a key with these ceilings would be refused a session with these limits."""
        self._planning.check_limits(req, ceilings)

    async def fork(
        self, session_id: str, req: ForkRequest, /, *, idempotency_key: str | None, caller: Caller
    ) -> tuple[SessionView, SnapshotKind]:
        """A copy of a session as it is now, and what came back in it. The original goes on as before."""
        row = await self._creation.fork(session_id, req, idempotency_key=idempotency_key, caller=caller)
        return self._views.of(row), row.spec.restored or SnapshotKind.FILES

    async def admit(self, session_id: str, caller: Caller, /) -> None:
        """Returns if the caller may know of this session; else raises ``SessionNotFound``, as if there were none."""
        await self._owners.admit(session_id, caller)

    async def get(self, session_id: str, /) -> SessionView:
        return self._views.of(await self._store.get(session_id))

    async def list(
        self, *, status: Sequence[Status] | None, limit: int, cursor: str | None, caller: Caller, stats: bool = False
    ) -> tuple[list[SessionView], str | None]:
        """What the caller may see, newest first. Without ``status``: all that are not destroyed.

        ``stats``: with what the active ones use.
        """
        return await self._views.page(status=status, limit=limit, cursor=cursor, caller=caller, stats=stats)

    async def stats(self, session_id: str, /) -> SessionStats:
        """What an active session uses now. Does not count as use."""
        return await self._views.stats(session_id)

    async def destroy(self, session_id: str, /) -> None:
        """From any state. Shares a destroy that is under way; waits for a create that is, so as not to race it."""
        row = await self._store.get(session_id)
        if row.status == Status.CREATING:
            await self._operations.wait(session_id)
        await self._operations.share(
            _DESTROY + session_id, lambda: self._lifecycle.take_down(session_id, Reason.REQUESTED)
        )

    # -- sleep -------------------------------------------------------------------------------------------------------

    async def pause(self, session_id: str, how: PausedAs | None, /) -> SessionView:
        """Put it to sleep; see ``PausedAs``; None is the best way to hold no process. Refused while it is in use."""
        await self._operations.wait(session_id)
        row = await self._operations.share(session_id, lambda: self._sleep.pause(session_id, how))
        return self._views.of(row)

    async def wake(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionView, PausedAs | None]:
        """And what came back; ``FILES`` gives up memory that was kept. Callers at the same time share one wake-up."""
        row = await self._store.get(session_id)
        if row.status in (Status.PAUSING, Status.RESUMING):
            await self._operations.wait(session_id)
        if row.status in (Status.DESTROYING, Status.DESTROYED, Status.ERROR):
            raise unusable(row)
        row, came_as = await self._operations.share(_WAKE + session_id, lambda: self._sleep.wake(session_id, how))
        return self._views.of(row), came_as

    async def revive(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionView, PausedAs | None]:
        """As ``wake``, also for one that is in error: from what is left of it, its files."""
        row = await self._store.get(session_id)
        if row.status != Status.ERROR:
            return await self.wake(session_id, how)
        row = await self._operations.share(_REVIVE + session_id, lambda: self._sleep.revive(session_id))
        return self._views.of(row), PausedAs.FILES

    # -- use ---------------------------------------------------------------------------------------------------------

    async def exec(self, session_id: str, req: ExecRequest, /, *, idempotency_key: str | None) -> ExecResult:
        timeout_ms = choose_timeout(req.timeout_ms, self._settings)
        live = await self._usable(session_id)
        exec_id = exec_id_for(session_id, idempotency_key) if idempotency_key else new_exec_id()
        with in_use(live, self._clock):
            async with live.shell(req.shell):
                live.oom.begin(exec_id)
                result = await calls.run_command(
                    live.link,
                    exec_id,
                    req,
                    timeout_ms=timeout_ms,
                    limit=self._settings.max_output_bytes,
                    queue_seconds=self._settings.max_exec_timeout_ms / 1000,
                )
                result = judged(live.oom, result)
            self._count(result)
            if req.shell == DEFAULT_SHELL:
                live.cwd = result.cwd
        return result

    def _count(self, result: ExecResult) -> None:
        self._metrics.execs.labels(_outcome(result)).inc()

    async def exec_result(self, session_id: str, exec_id: str, /) -> ExecResult:
        live = await self._usable(session_id)
        with in_use(live, self._clock):
            result = await calls.get_result(
                live.link, exec_id, wait_seconds=2 * self._settings.max_exec_timeout_ms / 1000
            )
            return judged(live.oom, result)

    async def write_file(self, session_id: str, path: str, data: bytes, /, *, mode: int | None) -> None:
        _check_path(path)
        if len(data) > self._settings.max_file_bytes:
            raise TooLarge(f"{path}: {len(data)} bytes are more than the {self._settings.max_file_bytes} allowed")
        await self.room.check("uploads")
        live = await self._usable(session_id)
        with in_use(live, self._clock):
            await calls.write_file(live.link, path, data, mode=mode)

    async def read_file(self, session_id: str, path: str, /, *, max_bytes: int | None) -> tuple[bytes, bool]:
        _check_path(path)
        most = self._settings.max_file_bytes
        limit = most if max_bytes is None else min(max_bytes, most)
        live = await self._usable(session_id)
        with in_use(live, self._clock):
            return await calls.read_file(live.link, path, limit=limit, refuse_larger=max_bytes is None)

    async def _usable(self, session_id: str) -> LiveSession:
        """The live session; or why there is none, as the error that its state calls for."""
        live = self._live.get(session_id)
        if live is not None:
            return live
        row = await self._store.get(session_id)
        if row.status == Status.CREATING:
            await self._operations.wait(session_id)
            row = await self._store.get(session_id)
            live = self._live.get(session_id)
        if live is not None:
            return live
        if row.status in _CAN_WAKE:
            await self.wake(session_id)
            live = self._live.get(session_id)
        if live is not None:
            return live
        raise unusable(await self._store.get(session_id))


def _outcome(result: ExecResult) -> str:
    if result.timed_out or result.cancelled:
        return "timed_out" if result.timed_out else "cancelled"
    return "shell_ended" if result.shell_restarted else "failed" if result.exit_code else "ok"


def _check_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise BadInput("path: must be absolute and without NUL")
