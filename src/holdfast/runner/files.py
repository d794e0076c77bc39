"""Reading and writing files as the session's user. Every failure is a ``Refused``."""

from __future__ import annotations

import os
import stat

from holdfast.protocol.messages import INLINE_FILE_BYTES
from holdfast.runner.refused import Refused, explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.runner.tasks.sight import Sight

SCRATCH = ".holdfast-"
"""The prefix of files that are not complete yet."""


def open_regular(path: str, sight: Sight = os) -> tuple[int, int]:
    """Open a file for reading, and return the descriptor and the size. It never blocks on a pipe or a device."""
    try:
        fd = sight.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise explain(error, path) from None
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise Refused("not_a_file", f"{path} is no regular file")
    return fd, info.st_size


def read(path: str, limit: int, sight: Sight = os) -> tuple[dict[str, object], bytes]:
    """Read a small file, or report that it is too large for one frame. Files in /proc claim to have 0 bytes."""
    fd, size = open_regular(path, sight)
    try:
        if min(size, limit) > INLINE_FILE_BYTES:
            return {"stream": True, "size": size}, b""
        data = _read_up_to(fd, min(limit, INLINE_FILE_BYTES) + 1)
    except OSError as error:
        raise explain(error, path) from None
    finally:
        os.close(fd)
    cut = min(limit, INLINE_FILE_BYTES)
    return {"size": size, "truncated": len(data) > cut}, data[:cut]


def _read_up_to(fd: int, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := os.read(fd, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


class Replacement:
    """A file that takes its place only when it is complete: readers see the old content or the new, never a part."""

    def __init__(self, path: str, mode: int | None) -> None:
        self._target = os.path.realpath(path)
        self._path = path
        try:
            self._mode = self._choose_mode(mode)
            parent = os.path.dirname(self._target)
            os.makedirs(parent, exist_ok=True)
            self._temporary = f"{parent}/{SCRATCH}{os.getpid()}-{os.urandom(6).hex()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self._temporary, flags, 0o600)
        except OSError as error:
            raise explain(error, path) from None

    def _choose_mode(self, mode: int | None) -> int:
        try:
            info = os.stat(self._target)
        except FileNotFoundError:
            return 0o644 if mode is None else mode
        if not stat.S_ISREG(info.st_mode):
            raise Refused("not_a_file", f"{self._path} exists and is no regular file")
        if not os.access(self._target, os.W_OK):
            raise Refused("forbidden", f"{self._path}: the sandbox's user may not write to it")
        return stat.S_IMODE(info.st_mode) if mode is None else mode

    def __enter__(self) -> Replacement:
        return self

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise explain(error, self._path) from None

    def commit(self) -> None:
        try:
            os.fchmod(self._fd, self._mode)
            os.rename(self._temporary, self._target)
        except OSError as error:
            raise explain(error, self._path) from None
        self._temporary = ""

    def __exit__(self, *_exc: object) -> None:
        os.close(self._fd)
        if self._temporary:
            os.unlink(self._temporary)
