"""Copies one large file: its blocks are shared if the file system can do that, and holes stay holes. All of it
blocks."""

import errno
import fcntl
import os
import stat
from pathlib import Path

_FICLONE = 0x40049409
_CHUNK = 1 << 30
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def no_room(error: OSError) -> bool:
    """Say whether an operation failed because the disk is full."""
    return error.errno in _NO_ROOM


def copy_file(source: Path, target: Path, *, check_room: bool = True) -> None:
    """Copy only the blocks that hold something; the name appears when it is complete, readable by its owner alone.

    After an error nothing is left. With ``check_room``, ENOSPC is raised before anything is written if the copy cannot
    fit, so that other programs that write to the same disk do not suffer.
    """
    scratch = target.with_suffix(".new")
    try:
        with open(source, "rb", opener=_plain) as reader, open(scratch, "wb", opener=_private) as writer:
            if not share_blocks(reader.fileno(), writer.fileno()):
                if check_room:
                    _check_room(reader.fileno(), writer.fileno(), target)
                _copy_data(reader.fileno(), writer.fileno())
        scratch.rename(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _plain(path: str, flags: int) -> int:
    """Open a regular file and nothing else. An untrusted program may have put a link to another file there, or a
    device."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return fd


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def share_blocks(source: int, target: int) -> bool:
    """Let ``target`` share the blocks of ``source``; False if this file system cannot do that."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if no_room(error):
            raise
        return False
    return True


def _check_room(source: int, target: int, name: Path) -> None:
    there = os.fstatvfs(target)
    if os.fstat(source).st_blocks * 512 > there.f_bavail * there.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(name))


def _copy_data(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    position = 0
    while (start := _next_data(source, position, size)) is not None:
        position = os.lseek(source, start, os.SEEK_HOLE)
        _copy_range(source, target, start, position)


def _next_data(fd: int, position: int, size: int) -> int | None:
    if position >= size:
        return None
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole is left
            return None
        raise


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        try:
            copied = os.copy_file_range(source, target, min(end - start, _CHUNK), start, start)
        except OSError as error:
            if no_room(error) or error.errno == errno.EIO:
                raise
            copied = 0
        if copied == 0:  # some pairs of file systems cannot, and not all of them say so
            copied = os.pwrite(target, os.pread(source, min(end - start, 1 << 20), start), start)
        if copied == 0:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        start += copied
