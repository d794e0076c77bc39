"""Writes an image's root file system as a tar that ``docker import``, ``image import`` and ``tar`` take.

Owners are those inside the sandbox. Without root an image's files all belong to the caller, and are root's in the tar,
but for the session's own home. Mount points and the files that a runtime puts its own over are there, as in the image.
"""

import os
import secrets
import stat
import sys
import tarfile
from pathlib import Path
from typing import IO

from holdfast.errors import BadInput
from holdfast.images.layout import HOME, USER_ID
from holdfast.images.names import canonical
from holdfast.images.store import HOST, ImageStore
from holdfast.images.unpack.tree import LAST_ID, NOBODY

_OWN = {".holdfast"}  # a mount point that means nothing elsewhere


def export(store: ImageStore, name: str, file: Path) -> int:
    """Write the image to ``file``, all of it or nothing, or to stdout for ``-``; returns the size of the tar.

    Raises ``UnknownImage``, and ``BadInput`` for ``host``, which is not a tree of files.
    """
    if canonical(name) == HOST:
        raise BadInput("name: the 'host' image is this very host and cannot be exported; build or import one")
    root = store.root_of(name).layout
    if str(file) == "-":
        write_tar(root, sys.stdout.buffer, id_base=store.id_base)
        return 0
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with open(part, "wb") as out:
            write_tar(root, out, id_base=store.id_base)
            size = out.tell()
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return size


def write_tar(root: Path, out: IO[bytes], *, id_base: int | None) -> None:
    """Entries in a fixed order. The image must not change meanwhile; images never do. Raises OSError."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20) as tar:
        _Writer(root, tar, id_base).walk("")


class _Writer:
    def __init__(self, root: Path, tar: tarfile.TarFile, id_base: int | None) -> None:
        self._root = root
        self._tar = tar
        self._id_base = id_base
        self._seen: dict[tuple[int, int], str] = {}

    def walk(self, inside: str) -> None:
        """A directory, then what is in it."""
        directory = self._root / inside
        self._tar.addfile(self._info(f"./{inside}" if inside else ".", inside, directory.lstat()))
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            below = f"{inside}/{entry.name}" if inside else entry.name
            if below in _OWN:
                continue
            if entry.is_dir(follow_symlinks=False):
                self.walk(below)
            else:
                self._leaf(below)

    def _leaf(self, inside: str) -> None:
        path = self._root / inside
        status = path.lstat()
        info = self._info(f"./{inside}", inside, status)
        if stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115 - as it is written
            self._tar.addfile(info)
        elif stat.S_ISREG(status.st_mode):
            first = self._seen.setdefault((status.st_dev, status.st_ino), info.name)
            if first != info.name:
                info.type, info.linkname = tarfile.LNKTYPE, first
                self._tar.addfile(info)
            else:
                info.size = status.st_size
                with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                    self._tar.addfile(info, file)

    def _info(self, name: str, inside: str, status: os.stat_result) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.mode = stat.S_IMODE(status.st_mode)
        info.mtime = int(status.st_mtime)
        if stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
        if self._id_base is None:
            info.uid = info.gid = USER_ID if f"/{inside}" == HOME else 0
        else:
            info.uid, info.gid = self._unshift(status.st_uid), self._unshift(status.st_gid)
        return info

    def _unshift(self, number: int) -> int:
        assert self._id_base is not None
        inside = number - self._id_base
        return inside if 0 <= inside <= LAST_ID else NOBODY
