"""The description of one file, folder or link, and tasks on one: describe it, make a folder, change permission bits."""

from __future__ import annotations

import os
import stat

from holdfast.protocol import fields
from holdfast.protocol.frames import Header
from holdfast.runner.refused import Refused
from holdfast.runner.tasks.channel import Channel
from holdfast.runner.tasks.sight import Sight, sight_of


def kind_of(info: os.stat_result) -> str:
    if stat.S_ISREG(info.st_mode):
        return "file"
    if stat.S_ISDIR(info.st_mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(info.st_mode) else "other"


def describe(path: str, info: os.stat_result, sight: Sight = os) -> Header:
    """Return the result of stat(2) with readable names. Bytes of a name that are not UTF-8 become surrogates."""
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


def tell(channel: Channel, path: str, *, follow: bool = False) -> None:
    """Send a description of the path, as the usual last step of a task."""
    channel.send({"entry": describe(path, os.stat(path, follow_symlinks=follow))})


def look(channel: Channel, header: Header) -> None:
    path, sight = fields.text(header, "path"), sight_of(header)
    info = sight.stat(path) if header.get("follow") else sight.lstat(path)
    channel.send({"entry": describe(path, info, sight)})


def make_folder(channel: Channel, header: Header) -> None:
    """Make one folder. With ``parents``, make also those above it, and accept one that exists already."""
    path, mode = fields.text(header, "path"), fields.optional_integer(header, "mode")
    parents = bool(header.get("parents"))
    if parents:
        os.makedirs(os.path.dirname(path.rstrip("/")) or "/", exist_ok=True)
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        if not parents or not os.path.isdir(path):
            raise Refused("file_exists", f"{path} exists already") from None
    else:
        if mode is not None:
            os.chmod(path, mode)  # not by mkdir, which lets the umask take bits away
    tell(channel, path)


def change_mode(channel: Channel, header: Header) -> None:
    """Change the mode of a path, following a link. With ``recursive``, also of all below it, but not of links there."""
    path, mode = fields.text(header, "path"), fields.integer(header, "mode")
    if not header.get("recursive") or not os.path.isdir(path):
        os.chmod(path, mode)
    else:
        _chmod_tree(channel, path, mode)
    tell(channel, path, follow=True)


def _chmod_tree(channel: Channel, top: str, mode: int) -> None:
    passable = mode & 0o500 == 0o500  # else folders change last: a closed one cannot be entered any more
    folders, seen = [top], []
    while folders:
        folder = folders.pop()
        if passable:
            os.chmod(folder, mode)
        seen.append(folder)
        for entry in os.scandir(folder):
            channel.busy()
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif not entry.is_symlink():
                os.chmod(entry.path, mode)
    if not passable:
        for folder in reversed(seen):
            os.chmod(folder, mode)
