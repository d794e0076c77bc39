"""Snapshots that callers asked for: rows and files, kept in step.

A row comes before its files and goes after them. Whatever is cut off in between is found at the next start, or on the
next tick, and removed: half of a snapshot is no snapshot.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import partial

import structlog

from holdfast.callers.types import Caller
from holdfast.errors import HoldfastError, SnapshotNotFound, Unavailable
from holdfast.records.copies import SnapshotRow, SnapshotStatus
from holdfast.records.events import NewEvent
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.context import Context
from holdfast.sessions.copies.copying import FORGET, USABLE, Copies, Copying
from holdfast.sessions.copies.names import check_name
from holdfast.sessions.ids import fork_id_for, new_snapshot_id, session_of_fork
from holdfast.sessions.session import Sessions, told_of, unusable
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.sessions.watch.strays import Strays, mark_of_snapshot
from holdfast.store import spending

log = structlog.get_logger(__name__)

_SWEEP = "sweep:snapshots"


class Snapshots:
    """One node's snapshots, and those of others to look at."""

    def __init__(self, context: Context, sessions: Sessions, copying: Copying, strays: Strays) -> None:
        self._context = context
        self._operations = context.operations
        self._store = context.kept.snapshots
        self._copying = copying
        self._sessions = sessions
        self._strays = strays

    async def create(
        self, session_id: str, name: str | None, /, *, idempotency_key: str | None, caller: Caller
    ) -> SnapshotRow:
        """Keep what this session is now, under a name. It goes on as before, and may go away."""
        self._copying.check_ability()
        if name is not None:
            check_name("name", name)
        session = await self._sessions.settled_row(session_id)
        if session.status not in USABLE:
            raise unusable(session)
        await self._context.room.check("snapshots")
        planned = self._row(session, name, idempotency_key, caller.owner)
        row, is_new = await self._operations.share(planned.id, lambda: self._make(planned))
        return row if is_new else await self._made_before(row)

    async def _make(self, planned: SnapshotRow) -> tuple[SnapshotRow, bool]:
        """One operation from before there is a row: the tick takes a row that nobody works on for a dead daemon's."""
        row, is_new = await self._store.insert(planned, max_owned=self._context.settings.max_snapshots)
        return (await self._write(row), True) if is_new else (row, False)

    def _row(self, session: SessionRow, name: str | None, key: str | None, owner: str) -> SnapshotRow:
        id, asked = new_snapshot_id(), json.dumps(["snapshot", session.id, name])
        return SnapshotRow(
            id=id,
            name=name or id,
            owner=owner,
            status=SnapshotStatus.WRITING,
            kind=SnapshotKind.FILES,
            session_id=session.id,
            image=session.image,
            node=self._context.node,
            driver=self._context.driver.name,
            spec=session.spec,
            idempotency_key=key,
            idempotency_hash=hashlib.sha256(asked.encode()).hexdigest() if key else None,
            created_at=self._context.clock(),
        )

    async def _write(self, row: SnapshotRow) -> SnapshotRow:
        try:
            kind = await self._copying.take(self._copying.snapshots, row.id, row.session_id)
            size = await self._context.driver.measure(await self._copying.snapshots.path(row.id))
            session = await self._context.store.get(row.session_id)
            data = told_of(session) | {"snapshot_id": row.id, "name": row.name}
            note = NewEvent(EventKind.SNAPSHOT, session.id, data, session.owner)
            row = await self._store.finish(row.id, kind=kind, size_bytes=size, now=self._context.clock(), notes=[note])
        except HoldfastError:
            await self._remove(row.id)
            raise
        await self._context.marks.put(mark_of_snapshot(row))
        log.info("snapshot.created", snapshot_id=row.id, session_id=row.session_id, size_bytes=row.size_bytes)
        return row

    async def _made_before(self, row: SnapshotRow) -> SnapshotRow:
        """The same request again: wait for the first one if it is still under way."""
        await self._operations.wait(row.id)
        try:
            row = await self._store.get(row.id, owner=row.owner)
        except SnapshotNotFound:
            raise Unavailable("the snapshot could not be taken; try again") from None
        if row.status != SnapshotStatus.READY:
            raise Unavailable(f"snapshot {row.name} is {row.status}; try again")
        return row

    async def list(self, *, caller: Caller) -> Sequence[SnapshotRow]:
        """Return what the caller may see, newest first."""
        return await self._store.all(owner=None if caller.sees_all else caller.owner)

    async def get(self, reference: str, /, *, caller: Caller) -> SnapshotRow:
        return await self._store.get(reference, owner=caller.owner, everybodys=caller.sees_all)

    async def within_reach(self, session_id: str, *, owner: str) -> Sequence[str]:
        """Return those of a session that another can be made from on this node, newest first."""
        ready = [
            row
            for row in await self._store.all(owner=owner)
            if row.session_id == session_id and row.status == SnapshotStatus.READY
        ]
        ready.sort(key=lambda row: row.created_at, reverse=True)
        return [
            row.id for row in ready if row.node == self._context.node or await self._copying.snapshots.reaches(row.id)
        ]

    async def delete(self, reference: str, /, *, caller: Caller) -> None:
        """Refused while a session is being made from it. Sessions that were made from it do not need it any more."""
        row = await self._store.get(reference, owner=caller.owner, everybodys=caller.sees_all)
        await self._operations.wait(row.id)
        await self._operations.share(row.id, lambda: self._remove(row.id))

    async def _remove(self, id: str) -> None:
        """Safe to repeat: who finds half of it goes on."""
        with spending():
            await self._store.begin_removal(id)
            await self._context.marks.remove(id)
            await self._copying.snapshots.forget(id)
            await self._store.remove(id)
        log.info("snapshot.removed", snapshot_id=id)

    def tick(self) -> None:
        """In the background: a directory that hosts share may take its time, and nothing else must wait for it."""
        if self._context.driver.capabilities.snapshot:
            self._operations.attempt(_SWEEP, "snapshot.sweep", self._sweep)

    async def _sweep(self) -> None:
        """Remove what nobody is working on and nobody can use; what was whole once, and has no row, is set aside.

        The directory is read before the rows: whatever is in it had its row by then.
        """
        places = self._copying.snapshots, self._copying.forks
        found = {id: copies for copies in places for id in await copies.own_ids()}
        rows = await self._store.all(node=self._context.node)
        for row in rows:
            if row.status != SnapshotStatus.READY:
                self._operations.attempt(row.id, "snapshot.remove", partial(self._remove, row.id), snapshot_id=row.id)
        creating = await self._context.store.by_status([Status.CREATING], node=self._context.node)
        known = {row.id for row in rows} | {fork_id_for(row.id) for row in creating}
        await self._context.marks.put(*(mark_of_snapshot(row) for row in rows if row.status == SnapshotStatus.READY))
        for id in found.keys() - known:
            busy = (id, session_of_fork(id), FORGET + id)
            if not any(self._operations.running(key) for key in busy):
                settle = partial(self._settle_stray, found[id], id)
                self._operations.attempt(FORGET + id, "snapshot.remove", settle, snapshot_id=id)
        await self._strays.forget_snapshots(found.keys() | known)

    async def _settle_stray(self, copies: Copies, id: str) -> None:
        if not await self._strays.keep_snapshot(id):
            log.warning("snapshot.stray.removed", snapshot_id=id)
            await copies.forget(id)
