"""What outlives sessions, as the caller manages it: ``client.snapshots``, ``client.workspaces``, ``client.strays``."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.results import Limits, of_wire


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A session's files and shells at one moment. Without a name of its own, its id is its name."""

    id: str
    name: str
    owner: str
    status: str
    kind: str
    """``files``, or ``memory``: with all processes."""
    session_id: str
    image: str
    driver: str
    limits: Limits
    writable_root: bool
    size_bytes: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """A directory that outlives sessions. ``session_id`` is who has it now."""

    id: str
    name: str
    owner: str
    session_id: str | None
    disk_mb: int
    size_bytes: int
    created_at: datetime
    last_used_at: datetime


@dataclass(frozen=True, slots=True)
class StrayInfo:
    """What was somebody's and is unknown to the database. ``remove_at`` None: it is never removed by itself."""

    id: str
    kind: str
    """``session``, ``snapshot`` or ``workspace``."""
    owner: str | None
    name: str | None
    last_used_at: datetime
    aside_at: datetime
    remove_at: datetime | None


class Managed:
    """Things of a daemon that a caller manages by name."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class Snapshots(Managed):
    """Snapshots, by name or id. ``session.snapshot`` takes one, ``create_session(snapshot=…)`` starts from one."""

    async def list(self) -> list[SnapshotInfo]:
        """List snapshots, newest first."""
        data = await self._transport.call("GET", "/v1/snapshots")
        return [of_wire(SnapshotInfo, one) for one in data["snapshots"]]

    async def get(self, name: str) -> SnapshotInfo:
        return of_wire(SnapshotInfo, await self._transport.call("GET", f"/v1/snapshots/{quote(name, safe='')}"))

    async def remove(self, name: str) -> None:
        """Remove a snapshot. Sessions that were made from it do not need it any more."""
        await self._transport.call("DELETE", f"/v1/snapshots/{quote(name, safe='')}")


class Workspaces(Managed):
    """Workspaces, by name or id. ``client.create_session(workspace=…)`` makes one, if there is none of that name."""

    async def list(self) -> list[WorkspaceInfo]:
        """List workspaces by name."""
        data = await self._transport.call("GET", "/v1/workspaces")
        return [of_wire(WorkspaceInfo, one) for one in data["workspaces"]]

    async def remove(self, name: str) -> None:
        """Remove a workspace with all its files. Refused while a session has it."""
        await self._transport.call("DELETE", f"/v1/workspaces/{quote(name, safe='')}")


class Strays(Managed):
    """For admins: what a lost or older database does not know any more."""

    async def list(self) -> list[StrayInfo]:
        """List strays; those set aside last come first."""
        data = await self._transport.call("GET", "/v1/strays")
        return [of_wire(StrayInfo, one) for one in data["strays"]]

    async def adopt(self, id: str) -> StrayInfo:
        """Bring it back, with its id, its owner and its files. Returns what it was."""
        return of_wire(StrayInfo, await self._transport.call("POST", f"/v1/strays/{quote(id, safe='')}/adopt"))

    async def remove(self, id: str) -> None:
        """Remove a stray with its files, before its time is up."""
        await self._transport.call("DELETE", f"/v1/strays/{quote(id, safe='')}")
