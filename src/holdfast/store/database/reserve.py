"""Room on the disk that is kept for the database: a file of nothing, given back piece by piece when the disk is full.

On a full disk nothing can be written, not even that a session is to be destroyed, which would make room. So what frees
room writes inside ``spending()``: where the database has no room then, the file is made shorter by a piece, and it is
tried again. Whoever else fills the disk gets nothing of it. When there is room again, the file is made anew.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path

import structlog

from holdfast.store.database.engine import is_sqlite, parse_url

log = structlog.get_logger(__name__)

PIECE = 1 << 20
_SPARE = 2
"""The file is made only where so many times its size are free: it must not be what fills the disk."""
_REFILL_SECONDS = 5.0
_spends: ContextVar[bool] = ContextVar("spends", default=False)


@contextlib.contextmanager
def spending() -> Iterator[None]:
    """Let the writes inside use the reserve: they make room."""
    token = _spends.set(True)
    try:
        yield
    finally:
        _spends.reset(token)


def may_spend() -> bool:
    return _spends.get()


class Reserve:
    """One file of ``size`` bytes, on the disk that the database is on. Everything here blocks, for a moment."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Make the file now, if there is room for it, and again whenever there is."""
        keeper = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])

    async def _keep(self) -> None:
        while True:
            await asyncio.to_thread(self.refill)
            await asyncio.sleep(_REFILL_SECONDS)

    def give(self, least: int = PIECE) -> bool:
        """Make the file shorter by so much; returns False if there is nothing left."""
        try:
            left = self._path.stat().st_size
            if not left:
                return False
            os.truncate(self._path, max(0, left - least))
        except OSError:
            return False
        log.warning("disk.reserve.spent", path=str(self._path), left_mb=max(0, left - least) >> 20)
        return True

    def give_if_full(self, least: int = 8 * PIECE) -> None:
        """Give room back if the disk is full: a daemon writes a few files before it can do anything."""
        with contextlib.suppress(OSError):
            if _free(self._path.parent) < least:
                self.give(least)

    def refill(self) -> bool:
        """Make the file whole, if there is more than enough room; returns whether it is."""
        try:
            missing = self._size - (self._path.stat().st_size if self._path.exists() else 0)
            if missing <= 0:
                return True
            if _free(self._path.parent) < _SPARE * self._size:
                return False
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("disk.reserve.failed", path=str(self._path), error=error.strerror)
            return False
        return True


def reserve_for(url: str, size: int) -> Reserve | None:
    """Return the reserve of a database that is a file on this machine; None for any other, and for a size of 0."""
    parsed = parse_url(url)
    if not size or not is_sqlite(parsed):
        return None
    path = Path(parsed.database or "")
    return Reserve(path.with_name(f"{path.name}.reserve"), size)


def _free(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
