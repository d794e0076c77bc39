"""What a new sandbox starts from, as the life cycle sees it: nothing, or what was kept of a session."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from holdfast.link.link import Link
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SnapshotKind


@dataclass(frozen=True, slots=True)
class Origin:
    """What ``Driver.snapshot`` wrote. ``consume``: nobody else will need it."""

    path: Path
    consume: bool


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back in a sandbox that was made from an origin, and the directory that its shell is in."""

    kind: SnapshotKind
    cwd: str


class Origins(Protocol):
    async def prepare(self, row: SessionRow, /) -> Origin | None:
        """What this session's sandbox is to be made from; None: nothing. Safe to repeat."""
        ...

    async def complete(self, row: SessionRow, link: Link, /) -> Restored | None:
        """Bring back what is not in the files, before the first command. Safe to repeat."""
        ...

    def done(self, row: SessionRow, /) -> None:
        """The session is up. What was made for it alone can go."""
        ...


class NoOrigins:
    """Every sandbox starts from nothing."""

    async def prepare(self, _row: SessionRow, /) -> Origin | None:
        return None

    async def complete(self, _row: SessionRow, _link: Link, /) -> Restored | None:
        return None

    def done(self, _row: SessionRow, /) -> None: ...
