"""A view of the file system for callers that may see files, but not what the kernel shows of processes.

The check is made while the path is resolved: component by component, each opened from the folder before it, and never
by letting the kernel follow a link. So no link can lead into a forbidden place, even if it is swapped at the last
moment; a link in /proc to another process's open file is refused with the rest of /proc.
"""

from __future__ import annotations

import errno
import os
import stat

from holdfast.protocol.frames import Header
from holdfast.runner.lean import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Protocol

    class Sight(Protocol):
        """The functions that are needed of a view; without ``files_only`` the module ``os`` itself is used."""

        def stat(self, path: str, /) -> os.stat_result: ...
        def lstat(self, path: str, /) -> os.stat_result: ...
        def open(self, path: str, flags: int, /) -> int: ...
        def listdir(self, path: str, /) -> list[str]: ...
        def readlink(self, path: str, /) -> str: ...
        def scandir(self, path: str, /) -> AbstractContextManager[Iterator[os.DirEntry[str]]]: ...
else:
    Sight = object


CLOSED = ("/proc", "/sys", "/dev")
_MAX_LINKS = 40
_ANYTHING = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def sight_of(header: Header) -> Sight:
    """Return the view that the host wants for this call."""
    return FilesOnly() if header.get("files_only") else os


class FilesOnly:
    """Raises PermissionError for hidden paths. It keeps the last folder open, because walks ask for many names in
    it."""

    def __init__(self) -> None:
        self._root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        found = [os.stat(place) for place in CLOSED if os.path.exists(place)]
        self._places = {(info.st_dev, info.st_ino) for info in found}
        own = os.fstat(self._root).st_dev
        self._devices = {info.st_dev for info in found[:2]} - {own}  # of /proc and /sys, wherever they are mounted
        self._last = ("/", self._root)

    def close(self) -> None:
        self._folder("/")
        os.close(self._root)

    def stat(self, path: str, /) -> os.stat_result:
        return self._look(*self._place(path, follow=True), path)

    def lstat(self, path: str, /) -> os.stat_result:
        return self._look(*self._place(path, follow=False), path)

    def open(self, path: str, flags: int, /) -> int:
        """Open a path. Links are checked and followed, unless ``flags`` has O_NOFOLLOW."""
        folder, name = self._place(path, follow=not flags & os.O_NOFOLLOW)
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            self._check(os.fstat(fd), path)
        except OSError:
            os.close(fd)
            raise
        return fd

    def listdir(self, path: str, /) -> list[str]:
        with self.scandir(path) as entries:
            return [entry.name for entry in entries]

    def readlink(self, path: str, /) -> str:
        folder, name = self._place(path, follow=False)
        return os.readlink(name, dir_fd=folder)

    def scandir(self, path: str, /) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """List a folder. The entries can be asked for their ``stat`` only until the end of the block."""
        return _Entries(self.open(path, os.O_RDONLY | os.O_DIRECTORY))

    def _look(self, folder: int, name: str, path: str) -> os.stat_result:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        self._check(info, path)
        return info

    def _check(self, info: os.stat_result, path: str) -> None:
        if info.st_dev in self._devices or (info.st_dev, info.st_ino) in self._places:
            places = ", ".join(CLOSED)
            raise PermissionError(errno.EACCES, f"a key with scope read sees no {places}; this needs scope use", path)

    def _place(self, path: str, *, follow: bool) -> tuple[int, str]:
        """Resolve a path to a folder's descriptor, valid until the next call, and a name in it that needs no
        following."""
        for _ in range(_MAX_LINKS):
            above, _, name = path.rstrip("/").rpartition("/")
            if name in ("", ".", ".."):
                return self._folder(path), "."
            folder = self._folder(above)
            try:
                target = os.readlink(name, dir_fd=folder) if follow else ""
            except OSError:
                target = ""  # no link, or nothing at all: whoever uses it will see
            if not target:
                return folder, name
            path = os.path.join(above or "/", target)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _folder(self, path: str) -> int:
        if path != self._last[0]:
            folder = self._enter(path) if path.strip("/") else self._root
            if self._last[1] != self._root:
                os.close(self._last[1])
            self._last = (path, folder)
        return self._last[1]

    def _enter(self, path: str) -> int:
        """Open a folder; every folder on the way to it is checked. Raises OSError."""
        here, links = os.dup(self._root), 0
        waiting = path.split("/")[::-1]
        try:
            while waiting:
                name = waiting.pop()
                if name in ("", "."):
                    continue
                there = os.open(name, _ANYTHING, dir_fd=here)
                info = os.fstat(there)
                if not stat.S_ISLNK(info.st_mode):
                    os.close(here)
                    here = there
                    self._check(info, path)
                    if not stat.S_ISDIR(info.st_mode):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                    continue
                os.close(there)
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                target = _target(name, here)
                if target.startswith("/"):
                    os.close(here)
                    here = os.dup(self._root)
                waiting += target.split("/")[::-1]
        except BaseException:
            os.close(here)
            raise
        return here


def _target(name: str, folder: int) -> str:
    """Return the target of a link; or the name itself, if it is no link any more, so that it is resolved once more."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return name


class _Entries:
    """The entries of ``os.scandir`` on a descriptor, which is closed at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._entries = os.scandir(fd)

    def __enter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __exit__(self, *_exc: object) -> None:
        self._entries.close()
        os.close(self._fd)
