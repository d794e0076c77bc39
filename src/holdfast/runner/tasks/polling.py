"""Finds changes in a folder by looking again and again, for kernels without events (gVisor).

A file that appears and disappears between two looks is not noticed. A rename is noticed by the inode number.
"""

from __future__ import annotations

import contextlib
import os
import stat

from holdfast.protocol.frames import Header
from holdfast.runner.files import SCRATCH
from holdfast.runner.refused import Refused
from holdfast.runner.tasks.sight import Sight

LOOK_SECONDS = 0.5
SILENT = ("9p",)
"""File systems for which inotify reports no changes. gVisor shows the host's files by such a file system."""
MAX_ENTRIES = 100_000


class Seen:
    """One entry, as it was at the last look."""

    __slots__ = ("identity", "is_folder", "state")

    def __init__(self, entry: os.DirEntry[str]) -> None:
        about = entry.stat(follow_symlinks=False)
        self.is_folder = entry.is_dir(follow_symlinks=False)
        self.identity = (about.st_dev, about.st_ino)
        self.state = None if self.is_folder else (about.st_mtime_ns, about.st_size, about.st_mode)


class Polled:
    """A tree whose changes are polled. For a single file, its folder is searched."""

    def __init__(self, path: str, sight: Sight = os, *, recursive: bool) -> None:
        self._sight = sight
        is_folder = self._is_folder(path)
        self._only = None if is_folder else path
        self._top = path if is_folder else os.path.dirname(path)
        self._recursive = recursive and is_folder
        self.ended = False
        self._last = self._look()

    def read(self) -> list[Header]:
        """Look again, and return the changes since the last time."""
        if not self._is_folder(self._top):
            self.ended = True
            return [{"kind": "deleted", "path": self._top, "directory": True}]
        last, self._last = self._last, self._look()
        gone = {seen.identity: path for path, seen in last.items() if path not in self._last}
        changes: list[Header] = []
        for path, seen in self._last.items():
            before = last.get(path)
            if before is None or before.identity != seen.identity:
                source = gone.pop(seen.identity, None) if before is None else None
                move = {} if source is None else {"kind": "moved", "path": source, "target": path}
                changes.append({**_change("created", path, seen), **move})
            elif before.state != seen.state:
                changes.append(_change("modified", path, seen))
        return [_change("deleted", path, last[path]) for path in gone.values()] + changes

    def _look(self) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        waiting = [self._top]
        while waiting:
            for path, seen in self._entries(waiting.pop()):
                found[path] = seen
                if seen.is_folder and self._recursive:
                    waiting.append(path)
            if len(found) > MAX_ENTRIES:
                raise Refused("too_many_watches", f"more than {MAX_ENTRIES} entries; watch a smaller tree")
        return found

    def _entries(self, folder: str) -> list[tuple[str, Seen]]:
        found = []
        try:
            with self._sight.scandir(folder) as entries:
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if not entry.name.startswith(SCRATCH) and self._only in (None, path):
                        with contextlib.suppress(OSError):  # it is gone again
                            found.append((path, Seen(entry)))
        except OSError:
            pass
        return found

    def _is_folder(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(self._sight.stat(path).st_mode)
        except OSError:
            return False


def _change(kind: str, path: str, seen: Seen) -> Header:
    return {"kind": kind, "path": path, "directory": seen.is_folder}


def file_system_of(path: str, table: str) -> str:
    """Return the kind of the file system that ``path`` is on, by a table of mounts; empty if it is not in there."""
    best, kind = "", ""
    with open(table, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            _, place, found, *_ = line.split(" ")
            inside = path == place or path.startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(best):
                best, kind = place, found
    return kind
