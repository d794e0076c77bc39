"""What the client gives back: plain frozen data."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, TypeVar

T = TypeVar("T")


def new_key() -> str:
    """Make an Idempotency-Key of our own: a call that is repeated under it is done once."""
    return uuid.uuid4().hex


def given(**wishes: Any) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {name: value for name, value in wishes.items() if value is not None}


class CommandFailed(Exception):
    """Raised by ``ExecResult.check``, never by ``exec`` itself: a command that fails is a result, not an error."""

    def __init__(self, result: "ExecResult") -> None:
        how = "timed out" if result.timed_out else f"ended with exit code {result.exit_code}"
        if result.oom_killed:
            how += ", after its sandbox ran out of memory"
        last = result.output.rstrip()[-500:]
        super().__init__(f"the command {how}" + (f": {last}" if last else ""))
        self.result = result


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. ``output`` is both streams in the order in which they were written."""

    exec_id: str
    exit_code: int
    cwd: str
    output: str
    stdout: str
    stderr: str
    truncated: bool
    timed_out: bool
    duration_ms: int
    shell_restarted: bool
    cancelled: bool = False
    oom_killed: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out

    def check(self) -> "ExecResult":
        """Return this result if the command succeeded; raises ``CommandFailed`` if it did not."""
        if not self.ok:
            raise CommandFailed(self)
        return self


@dataclass(frozen=True, slots=True)
class ExecEnd:
    """How a followed command ended; its output came before."""

    exec_id: str
    exit_code: int
    cwd: str
    truncated: bool
    timed_out: bool
    cancelled: bool
    duration_ms: int
    shell_restarted: bool
    oom_killed: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits on everything in one sandbox together; None takes the daemon's default."""

    cpus: float | None = None
    memory_mb: int | None = None
    pids: int | None = None
    disk_mb: int | None = None


@dataclass(frozen=True, slots=True)
class SessionStats:
    """What a session uses, and may use. None: it cannot be known there, or the limit is not enforced there."""

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


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as it was when the daemon last told of it."""

    id: str
    status: str
    reason: str | None
    error: str | None
    image: str
    driver: str
    cwd: str
    limits: Limits
    network: str | Mapping[str, Sequence[str]]
    """``none``, ``full``, or ``{"allow": [hosts]}``."""
    writable_root: bool
    metadata: Mapping[str, str]
    ttl_seconds: int
    created_at: datetime
    expires_at: datetime
    last_activity_at: datetime
    owner: str = "root"
    """Whose it is. Daemons from before there were keys do not say: everything was root's."""
    stats: SessionStats | None = None
    paused_as: str | None = None
    """How it sleeps, if it does: ``frozen`` or ``files``."""
    snapshot_id: str | None = None
    """The snapshot that it was made from."""
    forked_from: str | None = None
    """The session that it is a copy of."""
    workspace: str | None = None
    restored: str | None = None
    """Of a fork that was just made: what it has of the original, ``files`` or ``memory`` (with all processes)."""
    urls: Mapping[str, str] = field(default_factory=dict)
    """Its addresses by name, such as ``terminal`` and those of its tunnels, as they were when it was made or last
    refreshed."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    name: str
    kind: str
    size_bytes: int | None
    created_at: datetime
    digest: str | None
    recipe: str | None = None
    """The hash of what it was built from, if it was."""


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key, without the key itself."""

    id: str
    name: str
    scope: str
    owner: str
    max_sessions: int | None
    created_at: datetime
    last_used_at: datetime | None
    max_cpus: float | None = None
    max_memory_mb: int | None = None
    max_pids: int | None = None
    max_disk_mb: int | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. ``key`` is what to send; the daemon cannot show it again."""

    key: str = field(repr=False)
    info: KeyInfo


def of_wire(cls: type[T], data: Mapping[str, Any]) -> T:
    """Build ``cls`` from a reply; fields of a newer daemon are ignored."""
    known = fields(cls)  # type: ignore[arg-type]  # every T here is a dataclass, which no bound can say
    values = {one.name: data[one.name] for one in known if one.name in data}
    for name, value in values.items():
        if (name == "at" or name.endswith("_at")) and value is not None:
            values[name] = datetime.fromisoformat(value)
        elif name == "limits":
            values[name] = of_wire(Limits, value)
        elif name == "stats" and value is not None:
            values[name] = of_wire(SessionStats, value)
    return cls(**values)
