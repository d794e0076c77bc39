"""Snapshots, forks, workspaces and strays as they look on the wire."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from holdfast.api.sessions.models import TEN_YEARS, KeptName, LimitsOut, SessionOut
from holdfast.api.wire.models import From, Output, Request
from holdfast.api.wire.text import Metadata, Timestamp
from holdfast.records.copies import SnapshotRow, SnapshotStatus
from holdfast.records.spec import SnapshotKind
from holdfast.sessions.types import ForkRequest, StrayKind, StrayView, WorkspaceView


class ForkIn(Request):
    """What the copy has of its own. What is left out is as in the original."""

    metadata: Metadata | None = None
    ttl_seconds: Annotated[int, Field(strict=True, gt=0, le=TEN_YEARS)] | None = None

    def request(self) -> ForkRequest:
        return ForkRequest(metadata=self.metadata, ttl_seconds=self.ttl_seconds)


class SessionForked(SessionOut):
    """``restored`` says what the copy has: memory (with all processes) or files."""

    restored: Literal["memory", "files"]


class SnapshotIn(Request):
    name: KeptName | None = Field(default=None, description="Unique among those of the owner; without one, its id")


class SnapshotOut(Output, record=SnapshotRow):
    id: str
    name: str
    owner: str
    status: SnapshotStatus
    kind: SnapshotKind
    session_id: str = Field(description="The session that it was taken of, which may be long gone")
    image: str
    driver: str
    limits: Annotated[LimitsOut, From("spec.limits")]
    writable_root: Annotated[bool, From("spec.writable_root")]
    size_bytes: int | None = Field(description="What it takes on the host's disk; null while it is written")
    created_at: Timestamp


class SnapshotList(BaseModel):
    snapshots: list[SnapshotOut]


class WorkspaceOut(Output, record=WorkspaceView, inner="row"):
    id: str
    name: str
    owner: str
    session_id: str | None = Field(description="The session that has it")
    disk_mb: int
    size_bytes: int
    created_at: Timestamp
    last_used_at: Timestamp = Field(description="When a session last took it")


class WorkspaceList(BaseModel):
    workspaces: list[WorkspaceOut]


class StrayOut(Output, record=StrayView):
    id: str
    kind: StrayKind
    owner: str | None = Field(description="Whose it was; null where its mark is damaged")
    name: str | None = Field(description="Of a snapshot or workspace")
    last_used_at: Timestamp
    aside_at: Timestamp = Field(description="Since when no row knows of it")
    remove_at: Timestamp | None = Field(description="When it will be removed; null: never")


class StrayList(BaseModel):
    strays: list[StrayOut]
