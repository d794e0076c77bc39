"""What the client tells of files: plain frozen data.

Paths are text; bytes of a name that are no UTF-8 stand in it as ``surrogateescape`` has them, so ``os.fsencode`` gives
the name as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file, folder or link. ``kind`` is file, directory, symlink or other; ``mode`` are permission bits."""

    path: str
    kind: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime: datetime
    target: str | None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "FileEntry":
        values: dict[str, Any] = {one.name: data.get(one.name) for one in fields(cls)}
        return cls(**values | {"mode": int(data["mode"], 8), "mtime": datetime.fromisoformat(data["mtime"])})


@dataclass(frozen=True, slots=True)
class FileChange:
    """``kind`` is ready, created, modified, deleted, moved or overflow; ``target`` is where it was moved to."""

    kind: str
    path: str
    directory: bool
    target: str | None


@dataclass(frozen=True, slots=True)
class FileLink:
    """A URL for one file that works without a key."""

    url: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class FolderCopy:
    """What was copied. ``left_out`` names links that would have led out of the folder on this machine."""

    files: int
    bytes: int
    left_out: tuple[str, ...] = ()
