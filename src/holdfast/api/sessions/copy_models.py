"""Snapshots, forks, workspaces and strays as they look on the wire."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from holdfast.api.sessions.models import TEN_YEARS, KeptName, LimitsOut, SessionOut
from holdfast.api.wire.request_model import Request
from holdfast.api.wire.text import Metadata, Timestamp, timestamp
from holdfast.sessions.types import (
    ForkRequest,
    SessionView,
    SnapshotKind,
    SnapshotStatus,
    SnapshotView,
    StrayKind,
    StrayView,
    WorkspaceView,
)


class ForkIn(Request):
    """What is left out is as in the original."""

    metadata: Metadata | None = None
    ttl_seconds: Annotated[int, Field(strict=True, gt=0, le=TEN_YEARS)] | None = None

    def request(self) -> ForkRequest:
        return ForkRequest(metadata=self.metadata, ttl_seconds=self.ttl_seconds)


class SessionForked(SessionOut):
    """``restored`` says what the copy has: memory (with all processes) or files."""

    restored: Literal["memory", "files"]

    @classmethod
    def of_fork(cls, view: SessionView, kind: SnapshotKind) -> "SessionForked":
        return cls.model_construct(**dict(SessionOut.of(view)), restored=kind.value)


class SnapshotIn(Request):
    name: KeptName | None = Field(default=None, description="Unique among those of the owner; without one, its id")


class SnapshotOut(BaseModel):
    id: str
    name: str
    owner: str
    status: SnapshotStatus
    kind: SnapshotKind
    session_id: str = Field(description="The session that it was taken of, which may be long gone")
    image: str
    driver: str
    limits: LimitsOut
    writable_root: bool
    size_bytes: int | None = Field(description="What it takes on the host's disk; null while it is written")
    created_at: Timestamp

    @classmethod
    def of(cls, view: SnapshotView) -> "SnapshotOut":
        limits = view.limits
        return cls(
            id=view.id,
            name=view.name,
            owner=view.owner,
            status=view.status,
            kind=view.kind,
            session_id=view.session_id,
            image=view.image,
            driver=view.driver,
            limits=LimitsOut(cpus=limits.cpus, memory_mb=limits.memory_mb, pids=limits.pids, disk_mb=limits.disk_mb),
            writable_root=view.writable_root,
            size_bytes=view.size_bytes,
            created_at=timestamp(view.created_at),
        )


class SnapshotList(BaseModel):
    snapshots: list[SnapshotOut]


class WorkspaceOut(BaseModel):
    id: str
    name: str
    owner: str
    session_id: str | None = Field(description="The session that has it")
    disk_mb: int
    size_bytes: int
    created_at: Timestamp
    last_used_at: Timestamp = Field(description="When a session last took it")

    @classmethod
    def of(cls, view: WorkspaceView) -> "WorkspaceOut":
        return cls(
            id=view.id,
            name=view.name,
            owner=view.owner,
            session_id=view.session_id,
            disk_mb=view.disk_mb,
            size_bytes=view.size_bytes,
            created_at=timestamp(view.created_at),
            last_used_at=timestamp(view.last_used_at),
        )


class WorkspaceList(BaseModel):
    workspaces: list[WorkspaceOut]


class StrayOut(BaseModel):
    id: str
    kind: StrayKind
    owner: str | None = Field(description="Whose it was; null where its mark is damaged")
    name: str | None = Field(description="Of a snapshot or workspace")
    last_used_at: Timestamp
    aside_at: Timestamp = Field(description="Since when no row knows of it")
    remove_at: Timestamp | None = Field(description="When it will be removed; null: never")

    @classmethod
    def of(cls, view: StrayView) -> "StrayOut":
        return cls(
            id=view.id,
            kind=view.kind,
            owner=view.owner,
            name=view.name,
            last_used_at=timestamp(view.last_used_at),
            aside_at=timestamp(view.aside_at),
            remove_at=None if view.remove_at is None else timestamp(view.remove_at),
        )


class StrayList(BaseModel):
    strays: list[StrayOut]
