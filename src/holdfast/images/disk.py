"""What makes a change on disk all-or-nothing: locks and atomic files."""

import fcntl
import os
from pathlib import Path
from typing import Self

from holdfast.drivers.disk.snapshot_place import flush


class Lock:
    """An exclusive lock on a file or directory. It goes with the process, so a crash never leaves one behind."""

    def __init__(self, path: Path, *, wait: bool = True) -> None:
        """Raises ``BlockingIOError`` if somebody else has it and we do not want to wait."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BaseException:
            os.close(self._fd)
            raise

    @classmethod
    def attempt(cls, path: Path) -> Self | None:
        """None if somebody has it, or if it is gone."""
        try:
            return cls(path, wait=False)
        except (FileNotFoundError, BlockingIOError):
            return None

    def release(self) -> None:
        os.close(self._fd)


def write_file(path: Path, text: str) -> None:
    """Write a file so that a reader, also one after a crash, sees the old text or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    for directory in (path.parent, path.parent.parent):
        flush(directory)
