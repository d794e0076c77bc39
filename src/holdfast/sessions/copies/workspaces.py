"""Named workspaces: directories that outlive sessions. A session has one from its create to its end."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog

from holdfast.callers.types import Caller
from holdfast.drivers.base import Driver
from holdfast.records.copies import WorkspaceRow
from holdfast.sessions.operations import Operations, reporting
from holdfast.sessions.types import WorkspaceView
from holdfast.sessions.watch.marks import Marks
from holdfast.sessions.watch.strays import Strays, mark_of_workspace
from holdfast.store import WorkspaceStore, spending

log = structlog.get_logger(__name__)

_DELETING = "deleting"


class Workspaces:
    """One node's workspaces, below ``root``, and those of others to look at."""

    def __init__(
        self,
        store: WorkspaceStore,
        driver: Driver,
        operations: Operations,
        marks: Marks,
        strays: Strays,
        root: Path,
        *,
        node: str,
    ) -> None:
        self._store = store
        self._driver = driver
        self._operations = operations
        self._marks = marks
        self._strays = strays
        self._root = root
        self._node = node

    async def list(self, *, caller: Caller) -> Sequence[WorkspaceView]:
        """What the caller may see, by name."""
        rows = await self._store.all(owner=None if caller.sees_all else caller.owner)
        return [WorkspaceView(row, await self._measure(row)) for row in rows if row.status != _DELETING]

    async def delete(self, reference: str, /, *, caller: Caller) -> None:
        """With all its files. Refused while a session has it."""
        row = await self._store.get(reference, owner=caller.owner, everybodys=caller.sees_all)
        await self._operations.share(row.id, lambda: self._remove(row.id))

    async def _remove(self, id: str) -> None:
        """Safe to repeat: who finds half of it goes on."""
        with spending():
            await self._store.begin_removal(id)
            await self._marks.remove(id)
            await self._driver.remove_workspace(self._root / id)
            await self._store.remove(id)
        log.info("workspace.removed", workspace_id=id)

    async def tick(self) -> None:
        """Finish removals that were cut off. A directory without a row is set aside: it may be somebody's work."""
        rows = await self._store.all(node=self._node)
        await self._marks.put(*(mark_of_workspace(row) for row in rows if row.status != _DELETING))
        await self._strays.keep_workspaces({row.id for row in rows})
        for row in rows:
            if row.status == _DELETING:
                work = reporting("workspace.remove", partial(self._remove, row.id), workspace_id=row.id)
                self._operations.spawn(row.id, work)

    async def _measure(self, row: WorkspaceRow) -> int:
        """Return the bytes that its files take; 0 for a workspace on another host, which cannot be measured here."""
        return await self._driver.measure(self._root / row.id) if row.node == self._node else 0
