"""Bringing sandboxes up and taking them down: the steps between rows, drivers and links, each safe to repeat.

Every operation holds the session's lock and the row's lease. Whatever is interrupted between two steps is found and
finished by the reconciler.
"""

from dataclasses import replace
from functools import partial

import structlog

from holdfast.drivers.base import Handle, SandboxSpec, SandboxState
from holdfast.errors import DriverConflict, HoldfastError, SandboxLost, SandboxNotFound, SessionGone, StaleRow
from holdfast.records.events import NewEvent
from holdfast.records.machine import Event, Reason, Status, next_status, sources
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.sessions.context import Context
from holdfast.sessions.copies.copying import Copying, Restored
from holdfast.sessions.session import Session, Sessions, told_of
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.sessions.watch.marks import Mark
from holdfast.store import spending

log = structlog.get_logger(__name__)

_MARKED = (
    *("id", "owner", "image", "driver", "handle", "spec", "metadata", "cwd", "ttl_seconds"),
    *("snapshot_id", "workspace_id", "created_at"),
)


class Life:
    """Brings sessions up, takes them down, and notes their crashes. ``sleep.Sleep`` pauses and wakes them."""

    def __init__(self, context: Context, sessions: Sessions, copying: Copying) -> None:
        self._context = context
        self._sessions = sessions
        self._copying = copying

    # -- up ----------------------------------------------------------------------------------------------------------

    async def bring_up(self, session: Session) -> SessionRow:
        """From ``creating`` to ``active``; or, when that fails, to ``destroyed`` with the error kept in the row.

        Safe to repeat after a crash at any point: leftovers of the earlier attempt are removed first.
        """
        async with self._sessions.alone(session.id):
            await session.lease()
            if session.record.status == Status.CREATING:
                await self._bring_up(session)
            else:  # somebody else was faster; whoever asked had an older row
                await session.release()
        return session.record

    async def _bring_up(self, session: Session) -> None:
        try:
            handle, restored = await self._start(session)
        except HoldfastError as error:
            log.warning("session.create.failed", session_id=session.id, code=error.code, error=error.message)
            await self._give_up(session, error)
            raise
        await self._mark_started(session, handle, restored)
        await self._context.marks.put(mark_of(session.record))
        self._sessions.adopt(session)
        self._copying.done(session.record)
        await session.release()
        log.info("session.created", session_id=session.id, image=session.record.image)

    def finish_create(self, row: SessionRow) -> None:
        """Bring up, in the background, what an earlier daemon, or an earlier request, has begun to make."""
        finish = partial(self.bring_up, Session(self._context, row))
        self._context.operations.attempt(row.id, "reconcile.create", finish, session_id=row.id)

    async def _mark_started(self, session: Session, handle: Handle, restored: Restored | None) -> None:
        spec = session.record.spec
        values: SessionChange = {"handle": handle, "cwd": session.link.home}
        if restored is not None:
            kind, values["cwd"] = restored
            values["spec"] = replace(spec, restored=kind)
        notes = [] if spec.fork_of is None else await self._note_fork(spec.fork_of, session.id)
        await session.step(Event.STARTED, values, notes)

    async def _note_fork(self, session_id: str, fork: str) -> list[NewEvent]:
        """Return the event of the session that was copied, if it still is there."""
        row = await self._sessions.find_row(session_id)
        return [] if row is None else [NewEvent(EventKind.FORKED, row.id, told_of(row) | {"fork": fork}, row.owner)]

    async def _start(self, session: Session) -> tuple[Handle, Restored | None]:
        """Return the sandbox, with its runner on the line, and what came back in it."""
        link, handle, spec = await session.listen(), session.handle, session.record.spec
        if spec.fork_of is not None:
            link.former_token = session.token_of(spec.fork_of)
        if not await self._is_running(handle):
            try:
                handle = await self._make(session)
            except DriverConflict:  # what an earlier daemon had begun may have come first
                if not await self._is_running(handle):
                    raise
        await link.wait_connected(self._context.settings.connect_seconds)
        await self._context.way_out.open(link, session.record.spec)
        return handle, await self._copying.complete(session.record, link)

    async def _make(self, session: Session) -> Handle:
        context = self._context
        session.image = session.image or await context.images.resolve(session.record.image)
        layout = str(session.image.layout)
        if session.record.spec.layout != layout:  # written down: the image may be replaced, its tree must stay
            services = session.image.services
            await session.set({"spec": replace(session.record.spec, layout=layout, services=services)})
        row = session.record
        spec = SandboxSpec(
            session_id=row.id,
            image=session.image,
            limits=row.spec.limits,
            network=row.spec.network.network,
            writable_root=row.spec.writable_root,
            env={**context.way_out.environment(row.spec.network), **row.spec.env},
            link_dir=context.hub.directory(row.id),
            token=session.token_of(row.id),
            workspace=None if row.workspace_id is None else context.kept.workspace_dir / row.workspace_id,
        )
        return await self._copying.make(row, spec)

    async def _is_running(self, handle: Handle) -> bool:
        """A create that was cut off may have got as far as a running sandbox."""
        try:
            return (await self._context.driver.inspect(handle)).state is SandboxState.RUNNING
        except SandboxNotFound:
            return False

    async def _give_up(self, session: Session, error: HoldfastError) -> None:
        await session.step(Event.FAILED, {"reason": Reason.CREATE_FAILED, "error": error.message})
        await session.step(Event.DESTROY, {"reason": Reason.CREATE_FAILED})
        try:
            await self._remove(session, error)
        except HoldfastError as trouble:
            log.warning(
                "session.cleanup.failed", session_id=session.id, error=trouble.message, next="retried on each tick"
            )

    # -- in advance --------------------------------------------------------------------------------------------------

    async def prepare(self, session: Session) -> SessionRow:
        """Make a sandbox for a session that nobody has asked for yet, with its runner on the line. It has no row."""
        handle, _nothing = await self._start(session)
        return replace(session.record, handle=handle, cwd=session.link.home)

    async def admit(self, session: Session, *, max_owned: int | None) -> bool:
        """Make an active session of a prepared sandbox, by the insert of its row; as ``SessionStore.insert``."""
        row = replace(session.record, status=next_status(session.record.status, Event.STARTED))
        session.record, is_new = await self._context.store.insert(
            row,
            max_live=self._context.settings.max_sessions,
            max_owned=max_owned,
            tell=[EventKind.CREATED, EventKind.ACTIVE],
        )
        if is_new:
            await self._context.marks.put(mark_of(session.record))
            self._sessions.adopt(session)
            log.info("session.created", session_id=session.id, image=session.record.image, pooled=True)
        return is_new

    async def discard(self, session_id: str, why: str) -> None:
        """Remove a sandbox that has no session, and the way to it."""
        self._sessions.forget(session_id)
        self._context.way_out.detach(session_id)
        await self._context.hub.close(session_id, SessionGone(why))
        await self._context.driver.destroy(self._context.driver.handle_for(session_id))

    async def remove_stray(self, session_id: str) -> None:
        """Remove a sandbox that no row knows of, and what is kept outside of it."""
        await self.discard(session_id, f"there is no session {session_id}")
        await self._forget_kept(session_id)

    async def adopt(self, session_id: str) -> None:
        """Take up an active session of an earlier daemon: its runner is dialling already."""
        async with self._sessions.alone(session_id):
            session = await self._sessions.get(session_id)
            if session.record.status == Status.ACTIVE:  # and not destroyed since the caller has looked
                await session.listen()
                self._sessions.adopt(session)

    # -- down --------------------------------------------------------------------------------------------------------

    async def take_down(self, session_id: str, reason: Reason) -> None:
        """Destroy, from any state. When the driver fails, the row stays ``destroying`` and the tick tries again."""
        with spending():
            async with self._sessions.alone(session_id):
                session = Session(self._context, await self._context.store.get(session_id))
                if session.record.status == Status.DESTROYED:
                    return
                await self._context.store.touch(self._sessions.take_unsaved(session_id))
                await session.lease()
                if session.record.status != Status.DESTROYING:
                    await session.step(Event.DESTROY, {"reason": session.record.reason or reason})
                await self._remove(session, SessionGone(f"session {session_id} was destroyed: {session.record.reason}"))

    async def claim_expired(self, row: SessionRow, now: float) -> bool:
        """Mark a session that is overdue at this time for destruction, unless it was used in the meantime."""
        values = SessionChange(status=next_status(row.status, Event.DESTROY), reason=Reason.EXPIRED)
        claim = self._context.store.claim_expired
        with spending():
            claimed = await claim(row.id, statuses=[row.status], now=now, values=values, tell=[EventKind.EXPIRED])
        return claimed is not None

    async def _remove(self, session: Session, error: HoldfastError) -> None:
        context = self._context
        self._sessions.forget(session.id)
        context.way_out.detach(session.id)
        await context.hub.close(session.id, error)
        await context.marks.remove(session.id)
        try:
            await context.driver.destroy(session.handle)
        except SandboxNotFound:
            pass
        except HoldfastError as trouble:  # a runtime that is unavailable is no DriverError
            await session.set({"error": f"destroy: {trouble.message}"})
            raise
        await self._forget_kept(session.id)
        await session.step(Event.GONE)
        await session.release()
        reason = session.record.reason or Reason.REQUESTED
        if reason != Reason.CRASHED:  # which was counted when it happened
            context.metrics.ended.labels(reason).inc()
        log.info("session.destroyed", session_id=session.id, reason=reason)

    async def _forget_kept(self, session_id: str) -> None:
        """Remove what is kept outside of a sandbox that is gone."""
        await self._context.shells.remove(session_id)
        await self._copying.forget(session_id)

    # -- lost --------------------------------------------------------------------------------------------------------

    async def mark_crashed(self, session_id: str, detail: str, *, oom: bool = False) -> None:
        """Its sandbox is gone or dead: say so, and end what waits for it. Nothing is recreated behind anyone's back."""
        context = self._context
        self._sessions.forget(session_id)
        context.way_out.detach(session_id)
        message = f"the sandbox of {session_id} has died: {detail}; its files are kept until the session is destroyed"
        try:
            await context.store.change(
                session_id,
                statuses=sources(Event.FAILED) - {Status.CREATING},
                generation=None,
                now=context.clock(),
                values={"status": Status.ERROR, "reason": Reason.CRASHED, "error": detail},
                tell=[EventKind.OOM, EventKind.ERROR] if oom else [EventKind.ERROR],
            )
        except StaleRow:
            return  # destroyed meanwhile
        await context.hub.close(session_id, SandboxLost(message))
        context.metrics.ended.labels(Reason.CRASHED).inc()
        log.error("session.crashed", session_id=session_id, detail=detail)


def mark_of(row: SessionRow) -> Mark:
    """Enough of a row to make it again."""
    facts = {name: getattr(row, name) for name in _MARKED} | {
        "metadata": dict(row.metadata),
        "spec": row.spec.to_json(),
    }
    return Mark(row.id, facts, row.last_activity_at)
