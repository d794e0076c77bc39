"""The few things that make a change on disk all-or-nothing: locks, syncing, atomic files, thorough removal."""

import ctypes
import fcntl
import os
import shutil
from pathlib import Path
from typing import Self

_LIBC = ctypes.CDLL(None, use_errno=True)


class Lock:
    """An exclusive lock on a file or directory. It goes with the process, so a crash never leaves one behind."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, path: Path) -> Self:
        """Wait for it."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    @classmethod
    def attempt(cls, path: Path) -> Self | None:
        """None if somebody has it, or if it is gone."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def release(self) -> None:
        os.close(self._fd)


def sync(path: Path) -> None:
    """Wait until all that was written to the file system of ``path`` is on disk; one call, however many files."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(fd)


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
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove_tree(path: Path) -> None:
    """Remove a tree that may be half made or already gone. What resists stays, and is tried again later."""
    shutil.rmtree(path, ignore_errors=True)
