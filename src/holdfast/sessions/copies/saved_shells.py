"""The shells of sessions that sleep, or that were copied: one file each, written as a whole or not at all."""

import asyncio
import contextlib
import os
from pathlib import Path

import structlog

from holdfast.errors import DiskFull, ProtocolError, SandboxLost, Unavailable
from holdfast.protocol import frames

log = structlog.get_logger(__name__)

ENDS = (".shells", ".shells.new")
"""Of the names here, whole and half. The files of a snapshot have ``.new`` while they are written, beside these."""
_NO_SPACE = (28, 122)  # ENOSPC, EDQUOT


class SavedShells:
    """All of them, in one directory that only the daemon may enter."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def write(self, session_id: str, saved: frames.Frame, *, lasting: bool = True) -> None:
        """``lasting=False``: a crash of the host may lose it, which makes it faster."""
        header = {name: value for name, value in saved[0].items() if name != "id"}
        await asyncio.to_thread(self._write, session_id, frames.encode(header, saved[1]), lasting)

    def _write(self, session_id: str, data: bytes, lasting: bool) -> None:
        target, scratch = self._path(session_id), self._scratch(session_id)
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.write(data)
                file.flush()
                if lasting:
                    os.fsync(file.fileno())
            _give_name(scratch, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                scratch.unlink()
            what = f"cannot keep the shells of {session_id} in {self._root}: {error.strerror}"
            raise (DiskFull(what) if error.errno in _NO_SPACE else Unavailable(what)) from error

    async def read(self, session_id: str) -> frames.Frame:
        try:
            data = await asyncio.to_thread(self._path(session_id).read_bytes)
            decoder = frames.Decoder()
            [frame] = decoder.feed(data)
        except (OSError, ValueError, ProtocolError) as error:
            raise SandboxLost(f"the saved shells of {session_id} cannot be read: {error}; destroy it") from error
        return frame

    async def find(self, session_id: str) -> frames.Frame | None:
        """None where there are none, or none that can be read: fresh shells take their place."""
        if not await asyncio.to_thread(self._path(session_id).exists):
            return None
        try:
            return await self.read(session_id)
        except SandboxLost as error:
            log.warning("shells.unreadable", session_id=session_id, error=error.message)
            return None

    async def remove(self, session_id: str) -> None:
        """Also half of them, which a daemon that was killed has left."""
        await asyncio.to_thread(self._remove, session_id)

    def _remove(self, session_id: str) -> None:
        for path in (self._path(session_id), self._scratch(session_id)):
            path.unlink(missing_ok=True)

    def _path(self, session_id: str) -> Path:
        return self._root / f"{session_id}{ENDS[0]}"

    def _scratch(self, session_id: str) -> Path:
        return self._root / f"{session_id}{ENDS[1]}"


def _give_name(scratch: Path, target: Path) -> None:
    """From now on they are whole."""
    scratch.rename(target)
