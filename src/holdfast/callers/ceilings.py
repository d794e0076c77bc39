"""The most that a session may be given: as the daemon's configuration says, or one key."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Ceilings:
    """One number per limit of a session; None is no ceiling."""

    max_cpus: float | None = None
    max_memory_mb: int | None = None
    max_pids: int | None = None
    max_disk_mb: int | None = None

    def to_json(self) -> dict[str, float]:
        """Only what is set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, fields: object) -> "Ceilings":
        """Return what ``to_json`` wrote; anything else is no ceiling."""
        return cls(**fields) if isinstance(fields, Mapping) else cls()


NO_CEILINGS: Final = Ceilings()
