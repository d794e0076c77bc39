"""What the session service can be told. The daemon fills it from its configuration."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from holdfast.callers.ceilings import NO_CEILINGS, Ceilings
from holdfast.records.limits import Limits
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SleepPolicy


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Defaults and limits of sessions."""

    default_image: str
    allowed_images: Collection[str] | None
    default_limits: Limits
    default_network: NetworkPolicy
    default_writable_root: bool
    ttl_seconds: int
    max_ttl_seconds: int
    max_sessions: int
    exec_timeout_ms: int
    max_exec_timeout_ms: int
    max_output_bytes: int
    max_file_bytes: int
    reap_interval_seconds: float
    connect_seconds: float = 20.0
    """How long a new sandbox may take until its runner has dialled."""
    lease_seconds: float = 180.0
    """Longer than the deadlines inside one create or destroy together."""
    keep_destroyed_seconds: float = 7 * 24 * 3600.0
    """How long the row of a destroyed session still answers "gone" instead of "unknown"."""
    event_retention_seconds: float = 7 * 24 * 3600.0
    """How long an event can be read."""
    max_snapshots: int = 100
    """How many one owner may have."""
    max_workspaces: int = 100
    """How many one owner may have."""
    default_sleep: SleepPolicy = field(default_factory=SleepPolicy)
    ceilings: Ceilings = NO_CEILINGS
    """The most that anybody may ask for."""
    machine: Limits | None = None
    """What the machine has; nobody gets more. None: it is not known."""
    pool: Mapping[str, int] = field(default_factory=dict)
    """How many sandboxes of which image are kept ready."""
    stray_keep_seconds: float = 7 * 24 * 3600.0
    """How long what no row knows of is kept, if it was somebody's."""
    low_disk_bytes: int = 0
    """Below this nothing is begun that needs room on the host's disk. 0: nobody looks."""
    warm_pool: Mapping[str, int] = field(default_factory=dict)
    """How many in which something was started already, by what they are for (``SessionService.warm_by``)."""
