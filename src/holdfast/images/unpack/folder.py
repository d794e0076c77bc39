"""Copies a directory that holds a root file system into a ``Tree``.

Never follows a link, and does not enter other file systems: a ``/proc`` that is mounted in the directory stays out.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import BadInput
from holdfast.images.unpack.budget import Budget
from holdfast.images.unpack.stream import CHUNK
from holdfast.images.unpack.tree import OPEN_DIR, OPEN_FILE, Meta, Parts, Tree, split

_ZEROS = bytes(CHUNK)


def copy(source: Path, tree: Tree, budget: Budget) -> None:
    """Copy everything below ``source``: modes, times, links and numeric owners; no devices, pipes or sockets."""
    root = os.open(source.resolve(), OPEN_DIR)
    try:
        _Copy(source, tree, budget, os.fstat(root).st_dev).walk(root, ())
    finally:
        os.close(root)


class _Copy:
    def __init__(self, source: Path, tree: Tree, budget: Budget, device: int) -> None:
        self._source = source
        self._tree = tree
        self._budget = budget
        self._device = device
        self._seen: dict[tuple[int, int], Parts] = {}

    def walk(self, fd: int, parts: Parts) -> None:
        status = os.fstat(fd)
        self._budget.entry()
        self._tree.directory(parts, _meta(status))
        if status.st_dev != self._device:
            return
        for name in sorted(os.listdir(fd)):
            self._entry(fd, name, split("/".join((*parts, name))))

    def _entry(self, fd: int, name: str, parts: Parts) -> None:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            below = self._open(name, OPEN_DIR, fd, parts)
            try:
                self.walk(below, parts)
            finally:
                os.close(below)
        elif (first := self._seen.get((status.st_dev, status.st_ino))) is not None:
            self._budget.entry()
            self._tree.hardlink(parts, first)
        elif stat.S_ISLNK(status.st_mode):
            self._budget.entry()
            self._tree.symlink(parts, _meta(status), os.readlink(name, dir_fd=fd))
        elif stat.S_ISREG(status.st_mode):
            self._file(self._open(name, OPEN_FILE, fd, parts), parts)

    def _file(self, fd: int, parts: Parts) -> None:
        try:
            status = os.fstat(fd)  # of what was opened: the directory may be changing under us
            if not stat.S_ISREG(status.st_mode):
                raise BadInput(f"{self._source.joinpath(*parts)} changed while it was read; try again")
            self._budget.entry(status.st_size)
            self._tree.file(parts, _meta(status), status.st_size, self._pieces(fd, status.st_size))
            if status.st_nlink > 1:
                self._seen[status.st_dev, status.st_ino] = parts
        finally:
            os.close(fd)

    def _pieces(self, fd: int, size: int) -> Iterator[tuple[int, bytes]]:
        offset = 0
        while offset < size and (chunk := os.read(fd, min(CHUNK, size - offset))):
            self._budget.check()
            if chunk != _ZEROS[: len(chunk)]:
                yield offset, chunk
            offset += len(chunk)

    def _open(self, name: str, flags: int, fd: int, parts: Parts) -> int:
        try:
            return os.open(name, flags, dir_fd=fd)
        except OSError as error:
            path = self._source.joinpath(*parts)
            raise BadInput(f"cannot read {path} ({error.strerror}); make it readable, or import a tar") from error


def _meta(status: os.stat_result) -> Meta:
    return Meta(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime)
