"""API keys, as the store keeps them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One row, column by column. ``hash`` is the SHA-256 of the key, in hex."""

    id: str
    name: str
    scope: str
    owner: str
    hash: str
    max_sessions: int | None = None
    created_at: float
    last_used_at: float | None = None
    max_cpus: float | None = None
    max_memory_mb: int | None = None
    max_pids: int | None = None
    max_disk_mb: int | None = None
