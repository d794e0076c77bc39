"""The session service: what the API calls. Decides who may do what in which state; the work is done by its parts."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import structlog

from holdfast.drivers.base import Driver
from holdfast.errors import BadInput, HoldfastError, SessionGone, TooLarge, Unavailable, WrongState
from holdfast.images.store import ImageStore
from holdfast.keys.types import ROOT, Caller
from holdfast.link.hub import LinkHub
from holdfast.sessions import calls
from holdfast.sessions.commands import Commands
from holdfast.sessions.event_kinds import Kind
from holdfast.sessions.files import SessionFiles
from holdfast.sessions.ids import exec_id_for, new_exec_id, new_session_id
from holdfast.sessions.lifecycle import Lifecycle
from holdfast.sessions.live import Clock, LiveSession, LiveSessions, in_use
from holdfast.sessions.machine import LIVE, Reason, Status
from holdfast.sessions.metrics import SessionMetrics
from holdfast.sessions.network import Egress, NoEgress
from holdfast.sessions.oom import judged
from holdfast.sessions.operations import Operations
from holdfast.sessions.owners import Owners
from holdfast.sessions.pool import Pool
from holdfast.sessions.pool_keeper import PoolKeeper
from holdfast.sessions.ports import Ports
from holdfast.sessions.processes import Processes
from holdfast.sessions.reaper import Reaper
from holdfast.sessions.reconciler import Reconciler
from holdfast.sessions.row_steps import RowSteps
from holdfast.sessions.saved_shells import SavedShells
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.sleep import PausedAs, Sleep
from holdfast.sessions.spec import SessionSpec, choose_image, choose_spec, choose_timeout, choose_ttl
from holdfast.sessions.types import DEFAULT_SHELL, CreateRequest, ExecRequest, ExecResult, SessionStats, SessionView
from holdfast.sessions.usage import Usage
from holdfast.store import SessionRow, SessionStore

log = structlog.get_logger(__name__)

_SAVE_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
_HOME = "/workspace"
_DESTROY = "destroy:"
_WAKE = "wake:"
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
        settings: SessionSettings,
        *,
        node: str,
        link_key: bytes,
        clock: Clock,
        metrics: SessionMetrics,
        egress: Egress | None = None,
    ) -> None:
        self._store = store
        self._driver = driver
        self._images = images
        self._hub = hub
        self._settings = settings
        self._node = node
        self._clock = clock
        self._metrics = metrics
        self._live = LiveSessions()
        self._owners = Owners(store)
        self._operations = Operations()
        self._egress: Egress = egress or NoEgress()
        self.files = SessionFiles(self._usable, clock)
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
            egress=self._egress,
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
        self._lifecycle.forget = self._sleep.forget
        pool = Pool(settings.pool)
        self._pool = PoolKeeper(
            pool, self._lifecycle, self._operations, self._plan, max_live=settings.max_sessions, metrics=metrics
        )
        self._reconciler = Reconciler(
            store, driver, self._lifecycle, self._sleep, self._live, self._operations, node=node, is_pooled=pool.owns
        )
        self._usage = Usage(driver, clock)
        metrics.live.set_function(self._live.count)
        self._reaper = Reaper(store, self._lifecycle, self._sleep, self._live, self._operations, node=node, clock=clock)
        self._lifecycle.on_disconnect = self._on_disconnect
        self._lifecycle.on_oom = self._on_oom
        self.commands = Commands(self._usable, self._operations, settings, clock, self._count)
        self.processes = Processes(self._usable, clock)
        self.ports = Ports(self._usable, clock)

    # -- running -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take up what an earlier daemon left, then watch over it until the end."""
        await self._reconciler.tick()
        watchers = [
            asyncio.create_task(self._every(_SAVE_SECONDS, self._reaper.save_activity)),
            asyncio.create_task(self._every(self._settings.reap_interval_seconds, self._tick)),
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
        await self._reaper.tick()
        await self._reaper.put_to_sleep()
        self._live.look_for_kills()
        await self._reconciler.tick()
        await self._reaper.prune(self._clock() - self._settings.keep_destroyed_seconds)
        await self._reaper.prune_events(self._clock() - self._settings.event_retention_seconds)
        await self._pool.refresh()
        await self._clean_images()

    async def _clean_images(self) -> None:
        """Remove trees of replaced images that no session uses any more."""
        rows = await self._store.by_status(LIVE, node=self._node)
        layouts = [*self._pool.layouts(), *(SessionSpec.from_json(row.spec).layout for row in rows)]
        await self._images.clean([Path(layout) for layout in layouts if layout])

    def _on_disconnect(self, session_id: str) -> None:
        if self._pool.lost(session_id):
            return

        async def investigate() -> None:
            try:
                await self._reconciler.investigate(session_id)
            except HoldfastError as error:
                log.warning("investigate.failed", session_id=session_id, error=error.message)

        self._operations.spawn(f"investigate:{session_id}", investigate)

    def _on_oom(self, session_id: str, kills: int) -> None:
        async def tell() -> None:
            try:
                await self._lifecycle.tell_oom(session_id, kills)
            except HoldfastError as error:
                log.warning("oom.event.failed", session_id=session_id, error=error.message)

        self._operations.spawn(f"oom:{session_id}", tell)

    # -- sessions ----------------------------------------------------------------------------------------------------

    async def create(self, req: CreateRequest, *, idempotency_key: str | None, caller: Caller) -> SessionView:
        row = await self._new_row(req, idempotency_key, caller.owner)
        claimed = await self._claim(row, caller)
        if claimed is not None:
            row, is_new = claimed
            return self._view(row) if is_new else await self._created_before(row)
        row, is_new = await self._store.insert(
            row, max_live=self._settings.max_sessions, max_owned=caller.max_sessions, tell=[Kind.CREATED]
        )
        if not is_new:
            return await self._created_before(row)
        with self._metrics.creates.time(), self._pool.creating():
            return self._view(await self._operations.share(row.id, lambda: self._lifecycle.bring_up(row.id)))

    async def _claim(self, row: SessionRow, caller: Caller) -> tuple[SessionRow, bool] | None:
        """The session out of the pool, if one there fits. An operation of its own: a caller may go away meanwhile."""
        ready = self._pool.take(row)
        if ready is None:
            return None
        return await self._operations.share(
            ready.id, lambda: self._pool.claim(ready, row, max_owned=caller.max_sessions)
        )

    async def _plan(self, image: str) -> SessionRow:
        """For the pool: what a create that names only the image would ask for."""
        return await self._new_row(CreateRequest(image=image), None, ROOT.owner)

    async def _new_row(self, req: CreateRequest, idempotency_key: str | None, owner: str) -> SessionRow:
        now = self._clock()
        image = choose_image(req.image, self._settings)
        spec = choose_spec(req, self._settings, self._driver.capabilities)
        self._egress.check(spec.network)
        ttl = choose_ttl(req.ttl_seconds, self._settings)
        root = await self._images.resolve(image)
        spec = replace(spec, layout=str(root.layout))
        return SessionRow(
            id=new_session_id(),
            owner=owner,
            status=Status.CREATING,
            image=image,
            node=self._node,
            driver=self._driver.name,
            spec=spec.to_json(),
            metadata=dict(req.metadata),
            cwd=_HOME,
            ttl_seconds=ttl,
            idempotency_key=idempotency_key,
            idempotency_hash=_hash(req) if idempotency_key else None,
            created_at=now,
            expires_at=now + ttl,
            last_activity_at=now,
            updated_at=now,
        )

    async def _created_before(self, row: SessionRow) -> SessionView:
        """The same request again: wait for the first one if it is still under way, and tell how it ended."""
        if row.status == Status.CREATING:  # of this daemon, or of an earlier one
            self._operations.spawn(row.id, lambda: self._reconciler.finish_create(row.id))
            await self._operations.wait(row.id)
            row = await self._store.get(row.id)
        if row.reason == Reason.CREATE_FAILED:
            raise Unavailable(f"the session could not be created: {row.error}; try again with another Idempotency-Key")
        return self._view(row)

    async def admit(self, session_id: str, caller: Caller, /) -> None:
        """Returns if the caller may know of this session; else raises ``SessionNotFound``, as if there were none."""
        await self._owners.admit(session_id, caller)

    async def get(self, session_id: str, /) -> SessionView:
        return self._view(await self._store.get(session_id))

    async def _with_stats(self, views: Sequence[SessionView], rows: Sequence[SessionRow]) -> list[SessionView]:
        here = [row for row in rows if row.status == Status.ACTIVE and row.node == self._node]
        found = dict(zip((row.id for row in here), await self._usage.of_many(here), strict=True))
        return [replace(view, stats=found.get(view.id)) for view in views]

    async def list(
        self, *, status: Sequence[Status] | None, limit: int, cursor: str | None, caller: Caller, stats: bool = False
    ) -> tuple[list[SessionView], str | None]:
        """What the caller may see, newest first. Without ``status``: all that are not destroyed.

        ``stats``: with what the active ones use.
        """
        owner = None if caller.sees_all else caller.owner
        rows = await self._store.page(statuses=status or list(LIVE), limit=limit + 1, after=cursor, owner=owner)
        more = rows[limit - 1].id if len(rows) > limit else None
        views = [self._view(row) for row in rows[:limit]]
        return await self._with_stats(views, rows) if stats else views, more

    async def stats(self, session_id: str, /) -> SessionStats:
        """What an active session uses now. Does not count as use."""
        row = await self._store.get(session_id)
        if row.status != Status.ACTIVE:
            raise _unusable(row)
        return await self._usage.of(row)

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
        return self._view(row)

    async def wake(self, session_id: str, how: PausedAs | None = None, /) -> tuple[SessionView, PausedAs | None]:
        """And what came back; ``FILES`` gives up memory that was kept. Callers at the same time share one wake-up."""
        row = await self._store.get(session_id)
        if row.status in (Status.PAUSING, Status.RESUMING):
            await self._operations.wait(session_id)
        if row.status in (Status.DESTROYING, Status.DESTROYED, Status.ERROR):
            raise _unusable(row)
        row, came_as = await self._operations.share(_WAKE + session_id, lambda: self._sleep.wake(session_id, how))
        return self._view(row), came_as

    def _view(self, row: SessionRow) -> SessionView:
        """The row, with what this daemon knows better: the latest activity."""
        spec = SessionSpec.from_json(row.spec)
        live = self._live.get(row.id)
        return SessionView(
            id=row.id,
            owner=row.owner,
            status=Status(row.status),
            reason=row.reason,
            error=row.error,
            paused_as=row.paused_as,
            image=row.image,
            driver=row.driver,
            cwd=live.cwd if live else row.cwd,
            limits=spec.limits,
            network=spec.network,
            writable_root=spec.writable_root,
            sleep=spec.sleep,
            metadata=row.metadata,
            ttl_seconds=row.ttl_seconds,
            created_at=row.created_at,
            expires_at=max(live.expires_at, row.expires_at) if live else row.expires_at,
            last_activity_at=max(live.last_activity_at, row.last_activity_at) if live else row.last_activity_at,
        )

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
        raise _unusable(await self._store.get(session_id))


def _outcome(result: ExecResult) -> str:
    if result.timed_out or result.cancelled:
        return "timed_out" if result.timed_out else "cancelled"
    return "shell_ended" if result.shell_restarted else "failed" if result.exit_code else "ok"


def _unusable(row: SessionRow) -> HoldfastError:
    if row.status in (Status.DESTROYING, Status.DESTROYED):
        return SessionGone(f"session {row.id} is {row.status}: {row.reason}; create a new one")
    if row.status == Status.ERROR:
        return WrongState(f"session {row.id} is in error ({row.reason}): {row.error}; destroy it and create a new one")
    return WrongState(f"session {row.id} is {row.status}, not active; try again")


def _check_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise BadInput("path: must be absolute and without NUL")


def _hash(req: CreateRequest) -> str:
    return hashlib.sha256(json.dumps(asdict(req), sort_keys=True, default=str).encode()).hexdigest()
