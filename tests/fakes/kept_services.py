"""Snapshots and workspaces in memory, with the real ones' manners."""

from collections.abc import Sequence

from fakes.session_service import FakeSessions
from holdfast.callers.types import Caller
from holdfast.errors import Conflict, SnapshotNotFound, StrayNotFound, WorkspaceNotFound
from holdfast.records.copies import SnapshotRow, SnapshotStatus, WorkspaceRow
from holdfast.records.machine import Status
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.types import StrayKind, StrayView, WorkspaceView


class FakeSnapshots:
    def __init__(self, sessions: FakeSessions) -> None:
        self._sessions = sessions
        self.snapshots: dict[str, SnapshotRow] = {}
        self.keys: dict[tuple[str, str], SnapshotRow] = {}

    async def create(
        self, session_id: str, name: str | None, /, *, idempotency_key: str | None, caller: Caller
    ) -> SnapshotRow:
        session = await self._sessions.get(session_id)
        if (caller.owner, idempotency_key) in self.keys:
            return self.keys[caller.owner, idempotency_key or ""]
        id = f"snp_{len(self.snapshots):08d}"
        if any((one.owner, one.name) == (caller.owner, name) for one in self.snapshots.values()):
            raise Conflict(f"there is a snapshot {name} already")
        view = SnapshotRow(
            id=id,
            name=name or id,
            owner=caller.owner,
            status=SnapshotStatus.READY,
            kind=SnapshotKind.FILES,
            session_id=session_id,
            image=session.image,
            driver=session.driver,
            node="node-a",
            spec=session.spec,
            size_bytes=12_345_678,
            created_at=1_700_000_000.5,
        )
        self.snapshots[id] = view
        if idempotency_key is not None:
            self.keys[caller.owner, idempotency_key] = view
        return view

    async def list(self, *, caller: Caller) -> Sequence[SnapshotRow]:
        return [one for one in self.snapshots.values() if caller.sees_all or one.owner == caller.owner]

    async def get(self, reference: str, /, *, caller: Caller) -> SnapshotRow:
        for one in await self.list(caller=caller):
            if reference in (one.id, one.name):
                return one
        raise SnapshotNotFound(f"there is no snapshot {reference}")

    async def delete(self, reference: str, /, *, caller: Caller) -> None:
        del self.snapshots[(await self.get(reference, caller=caller)).id]


class FakeWorkspaces:
    """Whatever sessions have named."""

    def __init__(self, sessions: FakeSessions) -> None:
        self._sessions = sessions
        self.removed: set[str] = set()

    async def list(self, *, caller: Caller) -> Sequence[WorkspaceView]:
        found: dict[str, WorkspaceView] = {}
        for one in self._sessions.sessions.values():
            name = one.spec.workspace
            if name and name not in self.removed and (caller.sees_all or one.owner == caller.owner):
                row = WorkspaceRow(
                    id=f"wsp_{name}",
                    name=name,
                    owner=one.owner,
                    status="ready",
                    node="node-a",
                    disk_mb=64,
                    created_at=one.created_at,
                    last_used_at=one.created_at,
                    session_id=None if one.status is Status.DESTROYED else one.id,
                )
                found[name] = WorkspaceView(row, 4096)
        return list(found.values())

    async def delete(self, reference: str, /, *, caller: Caller) -> None:
        for one in [view.row for view in await self.list(caller=caller)]:
            if reference in (one.id, one.name):
                if one.session_id:
                    raise Conflict(f"workspace {one.name} is held by session {one.session_id}")
                self.removed.add(one.name)
                return
        raise WorkspaceNotFound(f"there is no workspace {reference}")


class FakeStrays:
    """One session that nobody knows of."""

    def __init__(self) -> None:
        self.strays = {"ses_stray": StrayView("ses_stray", StrayKind.SESSION, "ada", None, 1.7e9, 1.7e9, 1.8e9)}
        self.adopted: list[str] = []

    async def list(self) -> Sequence[StrayView]:
        return [*self.strays.values()]

    async def adopt(self, id: str, /) -> StrayView:
        view = self._find(id)
        self.adopted.append(id)
        del self.strays[id]
        return view

    async def remove(self, id: str, /) -> None:
        del self.strays[self._find(id).id]

    def _find(self, id: str) -> StrayView:
        if id not in self.strays:
            raise StrayNotFound(f"nothing is set aside as {id}")
        return self.strays[id]
