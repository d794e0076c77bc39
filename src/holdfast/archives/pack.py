"""From a folder to a tar stream: folders, files and symbolic links with their modes and times, in a stable order."""

from __future__ import annotations

import os
import stat
import tarfile
import zlib

from holdfast.errors import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Protocol

    class Sight(Protocol):
        def stat(self, path: str, /) -> os.stat_result: ...
        def lstat(self, path: str, /) -> os.stat_result: ...
        def open(self, path: str, flags: int, /) -> int: ...
        def listdir(self, path: str, /) -> list[str]: ...
        def readlink(self, path: str, /) -> str: ...


CHUNK = 1 << 18


class _Sink:
    """What tarfile writes to: gathers pieces, compresses them if asked, and hands on whole chunks."""

    def __init__(self, give: Callable[[bytes], None], compress: bool) -> None:
        self._give = give
        self._zip = zlib.compressobj(wbits=31) if compress else None
        self._waiting = bytearray()
        self._position = 0

    def write(self, data: bytes) -> int:
        self._position += len(data)
        self._waiting += self._zip.compress(data) if self._zip else data
        if len(self._waiting) >= CHUNK:
            self._hand_on()
        return len(data)

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if self._zip:
            self._waiting += self._zip.flush()
        self._hand_on()

    def _hand_on(self) -> None:
        if self._waiting:
            self._give(bytes(self._waiting))
            self._waiting.clear()


def pack(folder: str, give: Callable[[bytes], None], *, compress: bool = False, sight: Sight = os) -> None:
    """Call ``give`` with the tar of what is in ``folder``, piece by piece. Names in it are relative to the folder.

    Links are stored, never followed. Sockets, pipes and devices are left out; what vanishes meanwhile is, too. A file
    that cannot be read raises OSError: a copy with silent holes is worse than none. ``sight`` resolves paths.
    """
    sink = _Sink(give, compress)
    archive = tarfile.TarFile(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT, copybufsize=CHUNK)  # type: ignore[arg-type]  # write and tell are all that it uses
    waiting = [("", folder)]
    while waiting:
        name, path = waiting.pop()
        below = _add(archive, name, path, sight)
        archive.members.clear()  # type: ignore[attr-defined]  # a list that only grows, of no use to us
        waiting += [(f"{name}/{child}" if name else child, f"{path}/{child}") for child in below]
    archive.close()
    sink.close()


def _add(archive: tarfile.TarFile, name: str, path: str, sight: Sight) -> list[str]:
    """Add one member; returns the names in it if it is a folder, the last one first."""
    try:
        info = sight.stat(path) if not name else sight.lstat(path)  # the folder itself may be given by a link
        member = _member(name or ".", path, info, sight)
        if member is None:
            return []
        if not member.isreg():
            archive.addfile(member)
            return sorted(sight.listdir(path), reverse=True) if member.isdir() else []
        with open(sight.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            _add_file(archive, member, file, path)
    except FileNotFoundError:
        if not name:
            raise
    return []


def _member(name: str, path: str, info: os.stat_result, sight: Sight) -> tarfile.TarInfo | None:
    member = tarfile.TarInfo(name)
    member.mode = stat.S_IMODE(info.st_mode)
    member.mtime = int(info.st_mtime)
    member.uid, member.gid = info.st_uid, info.st_gid
    if stat.S_ISDIR(info.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(info.st_mode):
        member.type = tarfile.SYMTYPE
        member.linkname = sight.readlink(path)
    elif not stat.S_ISREG(info.st_mode):
        return None
    return member


def _add_file(archive: tarfile.TarFile, member: tarfile.TarInfo, file: IO[bytes], path: str) -> None:
    """Add a file with the size that it has now: what is appended later is not read, what goes missing is an error."""
    member.size = os.fstat(file.fileno()).st_size
    try:
        archive.addfile(member, file)
    except OSError as error:
        if error.errno is None:  # how tarfile says that the file ended too early
            raise Conflict(f"{path} became shorter while it was read; try again") from None
        raise
