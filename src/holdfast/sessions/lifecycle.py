"""Bringing sandboxes up and taking them down: the steps between rows, drivers and links, each safe to repeat.

Every operation holds the row's lease, and every change of the row names the generation that came with it, so a daemon
that was overtaken changes nothing. Whatever is interrupted between two steps is found and finished by the reconciler.
"""

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import structlog

from holdfast.drivers.base import Driver, Handle, SandboxSpec, SandboxState, check_environment
from holdfast.errors import HoldfastError, SandboxLost, SandboxNotFound, SessionGone, SessionNotFound, StaleRow
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from holdfast.link.link import Link
from holdfast.records.events import NewEvent
from holdfast.records.machine import Event, Reason, Status, next_status, sources
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.records.spec import SessionSpec
from holdfast.sessions.create.origin import NoOrigins, Origins, Restored
from holdfast.sessions.live import Clock, LiveSession, LiveSessions
from holdfast.sessions.row_steps import RowSteps
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.event_kinds import Kind
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.use.oom import OomWatch
from holdfast.sessions.watch.marks import Mark, Marks
from holdfast.sessions.ways_out import WayOut
from holdfast.store import SessionStore, spending

log = structlog.get_logger(__name__)

_MARKED = (
    *("id", "owner", "image", "driver", "handle", "spec", "metadata", "cwd", "ttl_seconds"),
    *("snapshot_id", "workspace_id", "created_at"),
)
_ENVIRONMENT_SECONDS = 2.0
"""A runner that waits for its first command answers within a millisecond."""


class Lifecycle:
    """Brings sessions up, takes them down, and notes their crashes. ``sleep.Sleep`` pauses and wakes them."""

    def __init__(
        self,
        store: SessionStore,
        driver: Driver,
        images: ImageStore,
        hub: LinkHub,
        live: LiveSessions,
        rows: RowSteps,
        settings: SessionSettings,
        *,
        node: str,
        link_key: bytes,
        clock: Clock,
        metrics: SessionMetrics,
        way_out: WayOut,
        workspaces: Path,
        marks: Marks,
    ) -> None:
        self._store = store
        self._driver = driver
        self._images = images
        self._hub = hub
        self._live = live
        self._rows = rows
        self._settings = settings
        self._node = node
        self._link_key = link_key
        self._clock = clock
        self._metrics = metrics
        self._way_out = way_out
        self._workspaces = workspaces
        self._marks = marks
        self.origins: Origins = NoOrigins()
        self.on_disconnect: Callable[[str], None] = _ignore
        self.forget: Callable[[str], Awaitable[None]] = _nothing_to_forget
        """Called when a sandbox is gone: for what is kept outside of it."""
        self.on_oom: Callable[[str, int], None] = _ignore_kills
        """Told once of each time that processes of a session were killed for memory, and how many."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def alone(self, session_id: str) -> asyncio.Lock:
        """Held during a create or a destroy: the lease keeps other daemons out, but not other tasks of this one."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    # -- up ----------------------------------------------------------------------------------------------------------

    async def bring_up(self, session_id: str) -> SessionRow:
        """From ``creating`` to ``active``; or, when that fails, to ``destroyed`` with the error kept in the row.

        Safe to repeat after a crash at any point: leftovers of the earlier attempt are removed first.
        """
        async with self.alone(session_id):
            return await self._bring_up(await self._rows.lease(session_id))

    async def _bring_up(self, row: SessionRow) -> SessionRow:
        if row.status != Status.CREATING:  # somebody else was faster; whoever asked had an older row
            await self._rows.release(row)
            return row
        try:
            row = await self._resolve_image(row)
            handle, restored = await self._start(row)
        except HoldfastError as error:
            log.warning("session.create.failed", session_id=row.id, code=error.code, error=error.message)
            await self._give_up(row, error)
            raise
        row = await self._mark_started(row, handle, restored)
        await self._marks.put(mark_of(row))
        self.adopt_row(row)
        self.origins.done(row)
        await self._rows.release(row)
        log.info("session.created", session_id=row.id, image=row.image)
        return row

    async def _mark_started(self, row: SessionRow, handle: Handle, restored: Restored | None) -> SessionRow:
        spec = row.spec
        values: SessionChange = {"handle": handle, "cwd": self._home(row)}
        if restored is not None:
            values["cwd"] = restored.cwd
            values["spec"] = replace(spec, restored=restored.kind)
        notes = [] if spec.fork_of is None else await self._notes(spec.fork_of, Kind.FORKED, fork=row.id)
        return await self._rows.change(row, Event.STARTED, values, notes)

    async def _notes(self, session_id: str, kind: Kind, **more: object) -> list[NewEvent]:
        """An event about another session than the one that changes, if there still is one to tell of."""
        try:
            row = await self._store.get(session_id)
        except SessionNotFound:
            return []
        return [NewEvent(kind, row.id, told_of(row) | more, row.owner)]

    async def _start(self, row: SessionRow) -> tuple[Handle, Restored | None]:
        """The sandbox, with its runner on the line, and what came back in it."""
        link = await self.listen(row)
        handle = self._driver.handle_for(row.id)
        spec = row.spec
        if spec.fork_of is not None:
            link.former_token = self._token(spec.fork_of)
        if not await self._is_running(handle):
            handle = await self._make(row, spec)
        await link.wait_connected(self._settings.connect_seconds)
        await self._way_out.open(link, spec)
        return handle, await self.origins.complete(row, link)

    async def _make(self, row: SessionRow, chosen: SessionSpec) -> Handle:
        origin = await self.origins.prepare(row)
        spec = SandboxSpec(
            session_id=row.id,
            image=await self._images.resolve(row.image),
            limits=chosen.limits,
            network=chosen.network.network,
            writable_root=chosen.writable_root,
            env={**self._way_out.environment(chosen.network), **chosen.env},
            link_dir=self._hub.directory(row.id),
            token=self._token(row.id),
            workspace=None if row.workspace_id is None else self.workspace_place(row.workspace_id),
        )
        if origin is None:
            return await self._driver.create(spec)
        return await self._driver.restore(spec, origin.path, consume=origin.consume)

    def workspace_place(self, id: str) -> Path:
        return self._workspaces / id

    async def _resolve_image(self, row: SessionRow) -> SessionRow:
        """Write down which tree of the image this session uses: the image may be replaced, its tree must stay."""
        root = await self._images.resolve(row.image)
        spec = replace(row.spec, layout=str(root.layout))
        return await self._store.change(
            row.id,
            statuses=[Status.CREATING],
            generation=row.generation,
            now=self._clock(),
            values={"spec": spec},
        )

    async def _is_running(self, handle: Handle) -> bool:
        """A create that was cut off may have got as far as a running sandbox."""
        try:
            return (await self._driver.inspect(handle)).state is SandboxState.RUNNING
        except SandboxNotFound:
            return False

    async def _give_up(self, row: SessionRow, error: HoldfastError) -> None:
        row = await self._rows.change(row, Event.FAILED, {"reason": Reason.CREATE_FAILED, "error": error.message})
        row = await self._rows.change(row, Event.DESTROY, {"reason": Reason.CREATE_FAILED})
        try:
            await self._remove(row, error)
        except HoldfastError as trouble:
            log.warning("session.cleanup.failed", session_id=row.id, error=trouble.message, next="retried on each tick")

    async def listen(self, row: SessionRow) -> Link:
        """Its link, with somebody at each way out: what runs in it may call as soon as its runner has dialled."""
        link = await self._hub.listen(row.id, self._token(row.id))
        link.on_disconnect = lambda: self.on_disconnect(row.id)
        self._way_out.attach(link, row.spec)
        return link

    def _home(self, row: SessionRow) -> str:
        link = self._hub.get(row.id)
        return link.home if link is not None else row.cwd

    def _token(self, session_id: str) -> str:
        """What the runner proves itself with. Derived, so that it is nowhere stored and any daemon here knows it."""
        return hmac.new(self._link_key, session_id.encode(), hashlib.sha256).hexdigest()

    # -- in advance --------------------------------------------------------------------------------------------------

    async def prepare(self, row: SessionRow) -> SessionRow:
        """A sandbox for a session that nobody has asked for yet, with its runner on the line; ``row`` is not stored."""
        handle, _nothing = await self._start(row)
        return replace(row, handle=handle, cwd=self._home(row))

    @contextlib.contextmanager
    def lend(self, row: SessionRow) -> Iterator[LiveSession]:
        """A prepared sandbox, to start something in it before it is a session."""
        link = self._hub.get(row.id)
        if link is None:
            raise SandboxLost(f"the runner of {row.id} has hung up")
        watch = OomWatch(None, lambda _kills: None)
        yield LiveSession(row.id, link, row.ttl_seconds, row.cwd, row.last_activity_at, row.expires_at, watch)

    async def give_environment(self, session_id: str, env: Mapping[str, str]) -> None:
        """Before its first command. Also proves that the runner answers."""
        check_environment(env)
        link = self._hub.get(session_id)
        if link is None or not link.connected:
            raise SandboxLost(f"the runner of {session_id} has hung up")
        await link.call("env", {"env": dict(env)}, timeout=_ENVIRONMENT_SECONDS)

    async def admit(self, row: SessionRow, *, max_live: int, max_owned: int | None) -> tuple[SessionRow, bool]:
        """Make an active session of a prepared sandbox, by the insert of its row; as ``SessionStore.insert``."""
        status = next_status(Status(row.status), Event.STARTED)
        row, is_new = await self._store.insert(
            replace(row, status=status), max_live=max_live, max_owned=max_owned, tell=[Kind.CREATED, Kind.ACTIVE]
        )
        if is_new:
            await self._marks.put(mark_of(row))
            self.adopt_row(row)
            log.info("session.created", session_id=row.id, image=row.image, pooled=True)
        return row, is_new

    async def discard(self, session_id: str) -> None:
        """Remove a prepared sandbox, whole or half made."""
        self._way_out.detach(session_id)
        await self._hub.close(session_id, SessionGone(f"the sandbox {session_id} was not needed any more"))
        await self._driver.destroy(self._driver.handle_for(session_id))

    # -- adoption ----------------------------------------------------------------------------------------------------

    async def adopt(self, row: SessionRow) -> None:
        """Take up an active session of an earlier daemon: its runner is dialling already."""
        async with self.alone(row.id):
            row = await self._store.get(row.id)
            if row.status == Status.ACTIVE:  # and not destroyed since the caller has looked
                await self.listen(row)
                self.adopt_row(row)

    async def open_ways_out(self, link: Link, spec: SessionSpec) -> None:
        """Those that it is to have, in a sandbox that has just been started."""
        await self._way_out.open(link, spec)

    def adopt_row(self, row: SessionRow) -> None:
        """The row of an active session whose link is open: from now on it can be used."""
        link = self._hub.get(row.id)
        if link is not None and self._live.get(row.id) is None:
            self._way_out.attach(link, row.spec)  # it may have been another's, out of the pool
            watch = OomWatch(self._driver.oom_counter(self._driver.handle_for(row.id)), partial(self._oom, row.id))
            self._live.add(
                LiveSession(row.id, link, row.ttl_seconds, row.cwd, row.last_activity_at, row.expires_at, watch)
            )

    def _oom(self, session_id: str, kills: int) -> None:
        log.warning("session.oom", session_id=session_id, kills=kills, meaning="processes killed at the memory limit")
        self.on_oom(session_id, kills)

    # -- down --------------------------------------------------------------------------------------------------------

    async def take_down(self, session_id: str, reason: Reason) -> None:
        """Destroy, from any state. When the driver fails, the row stays ``destroying`` and the tick tries again."""
        with spending():
            await self._take_down(session_id, reason)

    async def _take_down(self, session_id: str, reason: Reason) -> None:
        async with self.alone(session_id):
            row = await self._store.get(session_id)
            if row.status == Status.DESTROYED:
                return
            await self._store.touch(self._live.take_unsaved(session_id))
            row = await self._rows.lease(session_id)
            if row.status != Status.DESTROYING:
                row = await self._rows.change(row, Event.DESTROY, {"reason": row.reason or reason})
            await self._remove(row, SessionGone(f"session {session_id} was destroyed: {row.reason}"))

    async def claim_expired(self, row: SessionRow, now: float) -> bool:
        """Mark a session that is overdue at this time for destruction, unless it was used in the meantime."""
        with spending():
            claimed = await self._store.claim_expired(
                row.id,
                statuses=[row.status],
                now=now,
                values={"status": next_status(Status(row.status), Event.DESTROY), "reason": Reason.EXPIRED},
                tell=[Kind.EXPIRED],
            )
        return claimed is not None

    async def _remove(self, row: SessionRow, error: HoldfastError) -> None:
        self._live.remove(row.id)
        self._way_out.detach(row.id)
        await self._hub.close(row.id, error)
        await self._marks.remove(row.id)
        try:
            await self._driver.destroy(self._driver.handle_for(row.id))
        except SandboxNotFound:
            pass
        except HoldfastError as trouble:  # a runtime that is unavailable is no DriverError
            await self._rows.note(row, f"destroy: {trouble.message}")
            raise
        await self.forget(row.id)
        row = await self._rows.change(row, Event.GONE)
        await self._rows.release(row)
        self._metrics.ended.labels(row.reason or Reason.REQUESTED).inc()
        log.info("session.destroyed", session_id=row.id, reason=row.reason)

    async def remove_stray(self, session_id: str) -> None:
        """A sandbox that no row knows of, the way to it, and what is kept outside of it."""
        await self._hub.close(session_id, SessionGone(f"there is no session {session_id}"))
        await self._driver.destroy(self._driver.handle_for(session_id))
        await self.forget(session_id)

    # -- lost --------------------------------------------------------------------------------------------------------

    async def mark_crashed(self, row: SessionRow, detail: str, *, oom: bool = False) -> None:
        """Its sandbox is gone or dead: say so, and end what waits for it. Nothing is recreated behind anyone's back."""
        self._live.remove(row.id)
        self._way_out.detach(row.id)
        message = f"the sandbox of {row.id} has died: {detail}; its files are kept until the session is destroyed"
        try:
            await self._store.change(
                row.id,
                statuses=sources(Event.FAILED) - {Status.CREATING},
                generation=None,
                now=self._clock(),
                values={"status": Status.ERROR, "reason": Reason.CRASHED, "error": detail},
                tell=[Kind.OOM, Kind.ERROR] if oom else [Kind.ERROR],
            )
        except StaleRow:
            return  # destroyed meanwhile
        await self._hub.close(row.id, SandboxLost(message))
        self._metrics.ended.labels(Reason.CRASHED).inc()
        log.error("session.crashed", session_id=row.id, detail=detail)

    async def tell_oom(self, session_id: str, kills: int) -> None:
        """Write the event: something in this session was killed for memory, and the session lives on."""
        row = await self._store.get(session_id)
        data = told_of(row) | {"kills": kills}
        await self._store.events.record(Kind.OOM, session_id, data=data, now=self._clock(), owner=row.owner)


def mark_of(row: SessionRow) -> Mark:
    """Enough of a row to make it again."""
    facts = {name: getattr(row, name) for name in _MARKED} | {
        "metadata": dict(row.metadata),
        "spec": row.spec.to_json(),
    }
    return Mark(row.id, facts, row.last_activity_at)


def told_of(row: SessionRow) -> dict[str, object]:
    """What an event says of a session that it does not change."""
    return {"status": row.status, "image": row.image, "metadata": dict(row.metadata)}


def _ignore_kills(_session_id: str, _kills: int) -> None:
    """Until somebody wants to know."""


def _ignore(_session_id: str) -> None:
    """Until the service has said whom to tell."""


async def _nothing_to_forget(_session_id: str) -> None:
    """Until somebody keeps something."""
