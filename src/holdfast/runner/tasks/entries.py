"""The description of one file, folder or link for the host."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.protocol.frames import Header
    from holdfast.runner.tasks.sight import Sight


def kind_of(info: os.stat_result) -> str:
    if stat.S_ISREG(info.st_mode):
        return "file"
    if stat.S_ISDIR(info.st_mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(info.st_mode) else "other"


def describe(path: str, info: os.stat_result, sight: Sight = os) -> Header:
    """The result of stat(2) with readable names. Bytes of a name that are not UTF-8 become surrogates."""
    entry: Header = {
        "path": path,
        "kind": kind_of(info),
        "size": info.st_size,
        "mode": stat.S_IMODE(info.st_mode),
        "uid": info.st_uid,
        "gid": info.st_gid,
        "mtime_ns": info.st_mtime_ns,
        "ctime_ns": info.st_ctime_ns,
        "inode": info.st_ino,
    }
    if stat.S_ISLNK(info.st_mode):
        entry["target"] = _target(path, sight)
    return entry


def _target(path: str, sight: Sight) -> str:
    try:
        return sight.readlink(path)
    except OSError:
        return ""  # it has just changed
