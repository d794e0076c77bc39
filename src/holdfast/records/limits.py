"""What a sandbox may use: limits, and which network it has."""

from dataclasses import dataclass
from enum import StrEnum


class Network(StrEnum):
    NONE = "none"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits on everything in one sandbox together."""

    cpus: float
    memory_mb: int
    pids: int
    disk_mb: int
