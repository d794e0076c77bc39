"""What goes into and comes out of the session service. Plain frozen data: no I/O, no framework."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.records.copies import WorkspaceRow
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SleepPolicy

DEFAULT_SHELL = "main"
Clock = Callable[[], float]
"""Unix time; tests bring their own."""


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A wish for a session; what is None takes the configured default."""

    image: str | None = None
    ttl_seconds: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    disk_mb: int | None = None
    network: NetworkPolicy | None = None
    writable_root: bool | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    sleep: SleepPolicy | None = None
    snapshot: str | None = None
    """The name or id of what it starts from, instead of an empty disk."""
    workspace: str | None = None
    """The name of the workspace that it has at ``/workspace``."""
    kept: bool = False
    """Somebody else decides when it ends: a thread does. Not for callers from outside."""
    least_memory_mb: int | None = None
    """What is in it needs so much, so that the default may be too little. Not for callers from outside."""
    purpose: str | None = None
    """What it is for: one out of the pool may be ready for that. Not for callers from outside."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A wish for a copy of a session; what is None is as in the original."""

    metadata: Mapping[str, str] | None = None
    ttl_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceView:
    """A workspace, and what its files take on this host's disk."""

    row: WorkspaceRow
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SessionStats:
    """What a session uses, and may use. None: it cannot be known here, or the limit is not enforced here."""

    cpu_seconds: float | None
    cpu_limit: float | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    memory_limit_bytes: int | None
    disk_bytes: int | None
    disk_limit_bytes: int | None
    processes: int | None
    processes_limit: int | None
    oom_kills: int | None
    uptime_seconds: float


class StrayKind(StrEnum):
    SESSION = "session"
    SNAPSHOT = "snapshot"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class StrayView:
    """What was somebody's and is not known to the database any more, as an admin may see it."""

    id: str
    kind: StrayKind
    owner: str | None
    name: str | None
    """Of a snapshot or workspace. None, like the owner, also where its mark cannot be read."""
    last_used_at: float
    aside_at: float
    remove_at: float | None
    """None: never, since it may hold files that are nowhere else."""


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """One command for a session's shell. ``env`` and ``cwd`` hold for this command only."""

    cmd: str
    timeout_ms: int | None = None
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    shell: str = DEFAULT_SHELL


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. ``output`` is both streams in the order in which they were written."""

    exec_id: str
    exit_code: int
    cwd: str
    output: bytes
    stdout: bytes
    stderr: bytes
    truncated: bool
    timed_out: bool
    cancelled: bool
    duration_ms: int
    shell_restarted: bool
    oom_killed: bool = False
