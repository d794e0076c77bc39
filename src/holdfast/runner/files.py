"""Files as the session's user sees them. Every failure is a ``FileError`` with a code that the host understands."""

from __future__ import annotations

import errno
import os
import stat

from holdfast.protocol.messages import INLINE_FILE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.runner.tasks.sight import Sight

_CODES = {
    errno.ENOENT: "file_not_found",
    errno.ENOTDIR: "not_a_file",
    errno.EISDIR: "not_a_file",
    errno.ENXIO: "not_a_file",
    errno.ENODEV: "not_a_file",
    errno.EACCES: "forbidden",
    errno.EPERM: "forbidden",
    errno.EROFS: "forbidden",
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "too_large",
    errno.EEXIST: "file_exists",
    errno.ENOTEMPTY: "not_empty",
    errno.EBUSY: "conflict",
    errno.ENAMETOOLONG: "bad_input",
    errno.ELOOP: "bad_input",
    errno.EINVAL: "bad_input",
}

SCRATCH = ".holdfast-"
"""How the names of files begin that are not whole yet."""


class FileError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def explain(error: OSError, path: str) -> FileError:
    """Translate the kernel's word once, here."""
    code = _CODES.get(error.errno or 0, "unavailable")
    hint = "; the root file system is read-only, write below /workspace or /tmp" if error.errno == errno.EROFS else ""
    return FileError(code, f"{path}: {error.strerror}{hint}")


def open_regular(path: str, sight: Sight = os) -> tuple[int, int]:
    """Open a file for reading; never blocks on a pipe or a device. Returns the descriptor and the size."""
    try:
        fd = sight.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise explain(error, path) from None
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise FileError("not_a_file", f"{path} is no regular file")
    return fd, info.st_size


def read(path: str, limit: int, sight: Sight = os) -> tuple[dict[str, object], bytes]:
    """A small file, or the news that it is too large for one frame. Files in /proc say 0 bytes and have more."""
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


def write(path: str, data: bytes, mode: int | None) -> None:
    """Create or replace a file in one step: readers see the old content or the new, never a part."""
    with Replacement(path, mode) as replacement:
        replacement.write(data)
        replacement.commit()


class Replacement:
    """A file that takes its place only when it is complete."""

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
            raise FileError("not_a_file", f"{self._path} exists and is no regular file")
        if not os.access(self._target, os.W_OK):
            raise FileError("forbidden", f"{self._path}: the sandbox's user may not write to it")
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
