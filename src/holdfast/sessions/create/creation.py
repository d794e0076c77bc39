"""New sessions: from an empty disk, out of the pool, from a snapshot, or as a copy of another session."""

from functools import partial

from holdfast.callers.types import Caller
from holdfast.errors import CreateFailed
from holdfast.records.machine import Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.context import Context
from holdfast.sessions.copies.copying import USABLE, Copying
from holdfast.sessions.create.planning import Planning
from holdfast.sessions.life import Life
from holdfast.sessions.pool.keeper import PoolKeeper
from holdfast.sessions.session import Session, Sessions, elsewhere, unusable
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.sessions.types import CreateRequest, ForkRequest


class Creation:
    """How sessions of this node come to be."""

    def __init__(
        self, context: Context, sessions: Sessions, planning: Planning, life: Life, pool: PoolKeeper, copying: Copying
    ) -> None:
        self._context = context
        self._operations = context.operations
        self._sessions = sessions
        self._planning = planning
        self._life = life
        self._pool = pool
        self._copying = copying

    async def create(self, req: CreateRequest, *, idempotency_key: str | None, caller: Caller) -> SessionRow:
        snapshot = None
        if req.snapshot is not None:
            self._copying.check_ability()
            snapshots = self._context.kept.snapshots
            snapshot = await snapshots.get(req.snapshot, owner=caller.owner, everybodys=caller.sees_all)
        session = await self._planning.session(req, idempotency_key, caller.owner, snapshot, caller.ceilings)
        row = session.record
        ready = None if req.snapshot or req.workspace else self._pool.take(row, req.purpose)
        if ready is not None:  # an operation of its own: a caller may go away meanwhile
            claim = partial(self._pool.claim, ready, row, max_owned=caller.max_sessions)
            claimed = await self._operations.share(ready.id, claim)
            if claimed is not None:
                row, is_new = claimed
                return row if is_new else await self._created_before(row)
        return await self._make(session, caller)

    async def fork(
        self, session_id: str, req: ForkRequest, *, idempotency_key: str | None, caller: Caller
    ) -> SessionRow:
        """A session with the files, shells and choices of another, as they are now; that one goes on as before."""
        self._copying.check_ability()
        original = await self._sessions.settled_row(session_id)
        session = await self._planning.fork(original, req, idempotency_key, caller.owner, caller.ceilings)
        if original.status not in USABLE and idempotency_key is None:
            raise unusable(original)
        return await self._make(session, caller)

    async def _make(self, session: Session, caller: Caller) -> SessionRow:
        with self._pool.creating():  # from here on: a slow insert must not let a refill overtake
            session.record, is_new = await self._context.store.insert(
                session.record,
                max_live=self._context.settings.max_sessions,
                max_owned=caller.max_sessions,
                tell=[EventKind.CREATED],
                workspace=self._planning.wish(session.record),
            )
            if not is_new:
                return await self._created_before(session.record)
            with self._context.metrics.creates.time():
                return await self._operations.share(session.id, lambda: self._life.bring_up(session))

    async def _created_before(self, row: SessionRow) -> SessionRow:
        """The same request again: wait for the first one if it is still under way, and tell how it ended."""
        if row.status == Status.CREATING:  # of this daemon, or of an earlier one
            if row.node != self._context.node:
                raise elsewhere(row)
            self._life.finish_create(row)
            await self._operations.wait(row.id)
            row = await self._context.store.get(row.id)
        if row.reason == Reason.CREATE_FAILED:
            raise CreateFailed(f"the session could not be created: {row.error}; try again with another Idempotency-Key")
        return row
