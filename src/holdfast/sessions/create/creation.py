"""New sessions: from an empty disk, out of the pool, from a snapshot, or as a copy of another session."""

from holdfast.callers.types import Caller
from holdfast.errors import CreateFailed
from holdfast.records.machine import Reason, Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.copies.captures import USABLE, Captures
from holdfast.sessions.create.planning import Planning
from holdfast.sessions.lifecycle import Lifecycle
from holdfast.sessions.live import unusable
from holdfast.sessions.operations import Operations
from holdfast.sessions.pool.keeper import PoolKeeper
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.event_kinds import Kind
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.types import CreateRequest, ForkRequest
from holdfast.sessions.watch.reconciler import Reconciler
from holdfast.store import SessionStore, SnapshotStore

_ON_THE_WAY = (Status.CREATING, Status.PAUSING, Status.RESUMING)


class Creation:
    """How sessions of this node come to be."""

    def __init__(
        self,
        store: SessionStore,
        snapshots: SnapshotStore,
        planning: Planning,
        lifecycle: Lifecycle,
        pool: PoolKeeper,
        reconciler: Reconciler,
        captures: Captures,
        operations: Operations,
        settings: SessionSettings,
        metrics: SessionMetrics,
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._planning = planning
        self._lifecycle = lifecycle
        self._pool = pool
        self._reconciler = reconciler
        self._captures = captures
        self._operations = operations
        self._settings = settings
        self._metrics = metrics

    async def create(self, req: CreateRequest, *, idempotency_key: str | None, caller: Caller) -> SessionRow:
        snapshot = None
        if req.snapshot is not None:
            self._captures.check_ability()
            snapshot = await self._snapshots.get(req.snapshot, owner=caller.owner, everybodys=caller.sees_all)
        row = await self._planning.session(req, idempotency_key, caller.owner, snapshot, caller.ceilings)
        claimed = None if req.snapshot or req.workspace else await self._claim(row, caller, req.purpose)
        if claimed is not None:
            row, is_new = claimed
            return row if is_new else await self._created_before(row)
        return await self._make(row, caller)

    async def fork(
        self, session_id: str, req: ForkRequest, *, idempotency_key: str | None, caller: Caller
    ) -> SessionRow:
        """A session with the files, shells and choices of another, as they are now; that one goes on as before."""
        self._captures.check_ability()
        original = await self._store.get(session_id)
        if original.status in _ON_THE_WAY:
            await self._operations.wait(session_id)
            original = await self._store.get(session_id)
        row = await self._planning.fork(original, req, idempotency_key, caller.owner, caller.ceilings)
        if original.status not in USABLE and idempotency_key is None:
            raise unusable(original)
        return await self._make(row, caller)

    async def _make(self, row: SessionRow, caller: Caller) -> SessionRow:
        with self._pool.creating():  # from here on: a slow insert must not let a refill overtake
            return await self._insert_and_make(row, caller)

    async def _insert_and_make(self, row: SessionRow, caller: Caller) -> SessionRow:
        row, is_new = await self._store.insert(
            row,
            max_live=self._settings.max_sessions,
            max_owned=caller.max_sessions,
            tell=[Kind.CREATED],
            workspace=self._planning.wish(row),
        )
        if not is_new:
            return await self._created_before(row)
        with self._metrics.creates.time():
            return await self._operations.share(row.id, lambda: self._lifecycle.bring_up(row.id))

    async def _claim(self, row: SessionRow, caller: Caller, purpose: str | None) -> tuple[SessionRow, bool] | None:
        """The session out of the pool, if one there fits. An operation of its own: a caller may go away meanwhile."""
        ready = self._pool.take(row, purpose)
        if ready is None:
            return None
        return await self._operations.share(
            ready.id, lambda: self._pool.claim(ready, row, max_owned=caller.max_sessions)
        )

    async def _created_before(self, row: SessionRow) -> SessionRow:
        """The same request again: wait for the first one if it is still under way, and tell how it ended."""
        if row.status == Status.CREATING:  # of this daemon, or of an earlier one
            self._operations.spawn(row.id, lambda: self._reconciler.finish_create(row.id))
            await self._operations.wait(row.id)
            row = await self._store.get(row.id)
        if row.reason == Reason.CREATE_FAILED:
            raise CreateFailed(f"the session could not be created: {row.error}; try again with another Idempotency-Key")
        return row
