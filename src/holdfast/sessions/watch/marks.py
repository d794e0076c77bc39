"""What this host has, noted beside the database: a file for each session, snapshot and workspace that was whole once.

    <state_dir>/marks/ses_….json    its row, and since when it is set aside, if it is; the file's time is its last use

A database may be lost, or be an older one. What has a mark and no row is somebody's work, and is set aside; what has
neither was never finished (a create that was killed, a sandbox of the pool, half of a copy), or its removal had begun.
So a mark comes after its row, and goes before its files. Each tick writes those that are missing.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger(__name__)

_END = ".json"
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """``row`` is empty where it cannot be read: then its files are kept all the same."""

    id: str
    row: Facts
    used_at: float
    aside_at: float | None = None


class Marks:
    """All of one host, in a directory that only the daemon may enter: rows hold the environments of sessions.

    What cannot be written is tried again on the next tick; nobody is refused anything for want of a mark.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._written: dict[str, str] = {}

    async def put(self, *marks: Mark) -> None:
        """Those that are missing, or say something else. A later use than is known already stays."""
        await asyncio.to_thread(self._put, marks)

    def _put(self, marks: Sequence[Mark]) -> None:
        for mark in marks:
            text = json.dumps({"row": dict(mark.row), "aside_at": mark.aside_at})
            if self._written.get(mark.id) != text:
                try:
                    self._write(self._path(mark.id), text, mark.used_at)
                except OSError as error:
                    log.warning("mark.failed", id=mark.id, error=error.strerror, next="tried again next tick")
                else:
                    self._written[mark.id] = text

    def _write(self, path: Path, text: str, used_at: float) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.new")
        used_at = max(used_at, _last_use(path) or 0.0)
        with open(scratch, "w", opener=_private) as file:
            file.write(text)
        os.utime(scratch, (used_at, used_at))
        scratch.rename(path)

    async def remove(self, id: str) -> None:
        """From now on it is nobody's work any more. Without a mark is fine."""
        await asyncio.to_thread(self._remove, id)

    def _remove(self, id: str) -> None:
        self._written.pop(id, None)
        try:
            self._path(id).unlink(missing_ok=True)
        except OSError as error:
            log.warning("mark.failed", id=id, error=error.strerror, next="removed when its files are gone")

    async def touch(self, used: Sequence[tuple[str, float]]) -> None:
        """Note when these were last used: an older database does not know."""
        await asyncio.to_thread(self._touch, used)

    def _touch(self, used: Sequence[tuple[str, float]]) -> None:
        for id, at in used:
            try:
                os.utime(self._path(id), (at, at))
            except OSError:
                continue  # it has none yet, or none any more

    async def get(self, id: str) -> Mark | None:
        return await asyncio.to_thread(self._get, id)

    async def all(self) -> dict[str, Mark]:
        return await asyncio.to_thread(self._all)

    def _all(self) -> dict[str, Mark]:
        try:
            names = [entry.name for entry in os.scandir(self._root) if entry.name.endswith(_END)]
        except FileNotFoundError:
            return {}
        found = [self._get(name.removesuffix(_END)) for name in names]
        return {mark.id: mark for mark in found if mark is not None}

    def _get(self, id: str) -> Mark | None:
        path = self._path(id)
        used_at = _last_use(path)
        if used_at is None:
            return None
        try:
            content = json.loads(path.read_text())
            return Mark(id, dict(content["row"]), used_at, content.get("aside_at"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):
            return Mark(id, {}, used_at)

    def _path(self, id: str) -> Path:
        return self._root / f"{id}{_END}"


def _last_use(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
