"""Sessions as their owners may see them: rows, with what this daemon knows better, and what they use."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.callers.types import Caller
from holdfast.records.machine import LIVE, Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.live import LiveSessions
from holdfast.sessions.refusals import unusable
from holdfast.sessions.types import SessionStats, SessionView
from holdfast.sessions.use.usage import Usage
from holdfast.store import SessionStore


class Views:
    """Looking at sessions. That is not using them."""

    def __init__(self, store: SessionStore, live: LiveSessions, usage: Usage, *, node: str) -> None:
        self._store = store
        self._live = live
        self._usage = usage
        self._node = node

    def of(self, row: SessionRow) -> SessionView:
        """The row, with what this daemon knows better: the latest activity."""
        spec = row.spec
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
            snapshot_id=row.snapshot_id,
            forked_from=spec.fork_of,
            workspace=spec.workspace,
        )

    async def page(
        self, *, status: Sequence[Status] | None, limit: int, cursor: str | None, caller: Caller, stats: bool
    ) -> tuple[list[SessionView], str | None]:
        """What the caller may see, newest first. Without ``status``: all that are not destroyed."""
        owner = None if caller.sees_all else caller.owner
        rows = await self._store.page(statuses=status or list(LIVE), limit=limit + 1, after=cursor, owner=owner)
        more = rows[limit - 1].id if len(rows) > limit else None
        views = [self.of(row) for row in rows[:limit]]
        return await self._with_stats(views, rows) if stats else views, more

    async def _with_stats(self, views: Sequence[SessionView], rows: Sequence[SessionRow]) -> list[SessionView]:
        here = [row for row in rows if row.status == Status.ACTIVE and row.node == self._node]
        found = dict(zip((row.id for row in here), await self._usage.of_many(here), strict=True))
        return [replace(view, stats=found.get(view.id)) for view in views]

    async def stats(self, session_id: str) -> SessionStats:
        """What an active session uses now."""
        row = await self._store.get(session_id)
        if row.status != Status.ACTIVE:
            raise unusable(row)
        return await self._usage.of(row)
