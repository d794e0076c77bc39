"""What outlives a session, as the store keeps it: snapshots and workspaces."""

from dataclasses import dataclass
from enum import StrEnum

from holdfast.records.spec import SessionSpec, SnapshotKind


class SnapshotStatus(StrEnum):
    WRITING = "writing"
    READY = "ready"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """One row, column by column. ``spec`` is that of the session it came from; without a name its id is its name."""

    id: str
    name: str
    owner: str
    status: SnapshotStatus
    kind: SnapshotKind
    session_id: str
    image: str
    node: str
    driver: str
    spec: SessionSpec
    size_bytes: int | None = None
    idempotency_key: str | None = None
    idempotency_hash: str | None = None
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRow:
    """One row, column by column, and the live session that holds it, if any."""

    id: str
    name: str
    owner: str
    status: str
    node: str
    disk_mb: int
    created_at: float
    last_used_at: float
    session_id: str | None = None
