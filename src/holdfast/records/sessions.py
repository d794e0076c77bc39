"""A session as the store keeps it, and what may be changed of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from holdfast.records.machine import PausedAs, Reason, Status
from holdfast.records.spec import SessionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One row, column by column.

    ``node`` is the host whose daemon made the sandbox; only that one can look at it. ``owner`` is for whom it was made.
    """

    id: str
    owner: str
    status: Status
    reason: Reason | None = None
    error: str | None = None
    image: str
    node: str
    driver: str
    handle: str | None = None
    spec: SessionSpec
    metadata: Mapping[str, str] = field(default_factory=dict)
    cwd: str
    ttl_seconds: int
    paused_as: PausedAs | None = None
    paused_at: float | None = None
    generation: int = 0
    lease_owner: str | None = None
    lease_expires_at: float | None = None
    idempotency_key: str | None = None
    idempotency_hash: str | None = None
    snapshot_id: str | None = None
    workspace_id: str | None = None
    created_at: float
    expires_at: float
    last_activity_at: float
    updated_at: float


class SessionChange(TypedDict, total=False):
    """The columns that ``change`` may set. Leases have their own methods; the rest is fixed at insert."""

    status: Status
    reason: Reason | None
    error: str | None
    handle: str | None
    spec: SessionSpec
    metadata: Mapping[str, str]
    cwd: str
    ttl_seconds: int
    paused_as: PausedAs | None
    paused_at: float | None
    expires_at: float
    last_activity_at: float
