"""Named workspaces: directories that outlive sessions. A session has one from its create to its end."""

from collections.abc import Sequence
from functools import partial

import structlog

from holdfast.callers.types import Caller
from holdfast.records.copies import WorkspaceRow
from holdfast.sessions.context import Context
from holdfast.sessions.types import WorkspaceView
from holdfast.sessions.watch.strays import Strays, mark_of_workspace
from holdfast.store import spending

log = structlog.get_logger(__name__)

_DELETING = "deleting"


class Workspaces:
    """One node's workspaces, and those of others to look at."""

    def __init__(self, context: Context, strays: Strays) -> None:
        self._context = context
        self._store = context.kept.workspaces
        self._strays = strays

    async def list(self, *, caller: Caller) -> Sequence[WorkspaceView]:
        """Return what the caller may see, by name."""
        rows = await self._store.all(owner=None if caller.sees_all else caller.owner)
        return [WorkspaceView(row, await self._measure(row)) for row in rows if row.status != _DELETING]

    async def delete(self, reference: str, /, *, caller: Caller) -> None:
        """With all its files. Refused while a session has it."""
        row = await self._store.get(reference, owner=caller.owner, everybodys=caller.sees_all)
        await self._context.operations.share(row.id, lambda: self._remove(row.id))

    async def _remove(self, id: str) -> None:
        """Safe to repeat: who finds half of it goes on."""
        with spending():
            await self._store.begin_removal(id)
            await self._context.marks.remove(id)
            await self._context.driver.remove_workspace(self._context.kept.workspace_dir / id)
            await self._store.remove(id)
        log.info("workspace.removed", workspace_id=id)

    async def tick(self) -> None:
        """Finish removals that were cut off. A directory without a row is set aside: it may be somebody's work."""
        rows = await self._store.all(node=self._context.node)
        await self._context.marks.put(*(mark_of_workspace(row) for row in rows if row.status != _DELETING))
        await self._strays.keep_workspaces({row.id for row in rows})
        for row in rows:
            if row.status == _DELETING:
                remove = partial(self._remove, row.id)
                self._context.operations.attempt(row.id, "workspace.remove", remove, workspace_id=row.id)

    async def _measure(self, row: WorkspaceRow) -> int:
        """Return the bytes that its files take; 0 for a workspace on another host, which cannot be measured here."""
        context = self._context
        return await context.driver.measure(context.kept.workspace_dir / row.id) if row.node == context.node else 0
