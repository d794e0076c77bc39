"""Moves, copies and removes files in one step, and folders with all that is in them. Links are never followed."""

from __future__ import annotations

import errno
import os
import stat

from holdfast.protocol import fields
from holdfast.protocol.frames import Header
from holdfast.runner import linux
from holdfast.runner.files import SCRATCH
from holdfast.runner.lean import Callable
from holdfast.runner.refused import Refused
from holdfast.runner.tasks.channel import Channel
from holdfast.runner.tasks.metadata import tell

CHUNK = 8 << 20


def move(channel: Channel, header: Header) -> None:
    """Rename; between file systems, copy whole and then remove."""
    source, target, overwrite = _places(header)
    _check_free(target, overwrite)
    try:
        _take_place(source, target, overwrite)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_in_place(source, target, overwrite, channel.busy)
        remove_tree(source, channel.busy)
    tell(channel, target)


def copy(channel: Channel, header: Header) -> None:
    """Copy a file or a link; with ``recursive``, a folder with all that is in it. Modes are kept."""
    source, target, overwrite = _places(header)
    if stat.S_ISDIR(os.lstat(source).st_mode) and not header.get("recursive"):
        raise Refused("bad_input", f"{source} is a folder; say recursive to copy it with all that is in it")
    _check_free(target, overwrite)
    _copy_in_place(source, target, overwrite, channel.busy)
    tell(channel, target)


def remove(channel: Channel, header: Header) -> None:
    path = fields.text(header, "path").rstrip("/")
    info = os.lstat(path or "/")
    if stat.S_ISDIR(info.st_mode):
        _check_removable(path)
        if not header.get("recursive"):
            _remove_empty(path)
            channel.send({})
            return
    remove_tree(path, channel.busy)
    channel.send({})


def _places(header: Header) -> tuple[str, str, bool]:
    source, target = fields.text(header, "source").rstrip("/"), fields.text(header, "target").rstrip("/")
    if not source or not target:
        raise Refused("bad_input", "the root itself can be neither moved nor copied")
    is_folder = stat.S_ISDIR(os.lstat(source).st_mode)
    if is_folder and os.path.realpath(target).startswith(f"{os.path.realpath(source)}/"):
        raise Refused("bad_input", f"{target} is inside of {source}")
    os.makedirs(os.path.dirname(target) or "/", exist_ok=True)
    return source, target, bool(header.get("overwrite"))


def _check_free(target: str, overwrite: bool) -> None:
    """Refuse to replace a folder, or to put something into it by accident."""
    if os.path.isdir(target) and not os.path.islink(target):
        raise Refused("file_exists", f"{target} is a folder; name the new path in full, or remove the folder first")
    if os.path.lexists(target) and not overwrite:
        raise Refused("file_exists", f"{target} exists already; say overwrite to replace it")


def _take_place(source: str, target: str, overwrite: bool) -> None:
    if overwrite:
        os.rename(source, target)
    elif not linux.rename_to_new(source, target):
        _check_free(target, overwrite)  # somebody was quicker, or the file system cannot do both in one step
        os.rename(source, target)


def _copy_in_place(source: str, target: str, overwrite: bool, busy: Callable[[], None]) -> None:
    """Make a copy beside the target, which takes its place when it is complete."""
    scratch = f"{os.path.dirname(target)}/{SCRATCH}{os.getpid()}-{os.urandom(6).hex()}"
    try:
        _copy_tree(source, scratch, busy)
        _take_place(scratch, target, overwrite)
    except BaseException:
        if os.path.lexists(scratch):
            remove_tree(scratch, lambda: None)  # nobody is listening any more
        raise


def _copy_tree(source: str, target: str, busy: Callable[[], None]) -> None:
    """Copy a tree. Sockets, pipes and devices below the top are left out."""
    waiting, folders = [(source, target)], []
    while waiting:
        old, new = waiting.pop()
        busy()
        info = os.lstat(old)
        if stat.S_ISDIR(info.st_mode):
            os.mkdir(new, 0o700)
            folders.append((new, stat.S_IMODE(info.st_mode)))
            waiting += [(f"{old}/{name}", f"{new}/{name}") for name in os.listdir(old)]
        elif stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(old), new)
        elif stat.S_ISREG(info.st_mode):
            _copy_file(old, new, stat.S_IMODE(info.st_mode), busy)
        elif old == source:
            raise Refused("not_a_file", f"{source} is neither a file nor a folder nor a link")
    for new, mode in reversed(folders):
        os.chmod(new, mode)


def _copy_file(source: str, target: str, mode: int, busy: Callable[[], None]) -> None:
    old = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while os.sendfile(new, old, None, CHUNK):  # None: from where it is
                busy()
            os.fchmod(new, mode)
        finally:
            os.close(new)
    finally:
        os.close(old)


def _check_removable(path: str) -> None:
    """Refuse, before anything is deleted, what cannot be removed in the end or what the session cannot do without."""
    if not path or os.path.ismount(path):
        raise Refused("bad_input", f"{path or '/'} is a mount point and stays; remove what is in it")
    if os.path.realpath(path) == os.path.realpath(os.environ.get("HOME", "/")):
        raise Refused("bad_input", f"{path} is the session's home and stays; remove what is in it")


def _remove_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        raise Refused("not_empty", f"{path} is not empty; say recursive to remove all that is in it") from None


def remove_tree(path: str, busy: Callable[[], None]) -> None:
    """Remove a tree, however deep it is: it goes into each folder, so that no path grows long and nothing recurses."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    parent, name = os.path.split(path)
    os.chdir(parent)
    trail = [(name, _enter(name))]
    while trail:
        busy()
        name, folders = trail[-1]
        if folders:
            child = folders.pop()
            trail.append((child, _enter(child)))
        else:
            trail.pop()
            os.chdir("..")
            os.rmdir(name)
    os.chdir("/")


def _enter(folder: str) -> list[str]:
    """Go into a folder and unlink its files; return the folders in it."""
    if os.lstat(folder).st_mode & 0o700 != 0o700:
        os.chmod(folder, 0o700)  # our own, but closed: it shall go all the same
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    os.fchdir(fd)
    os.close(fd)
    with os.scandir(".") as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name)
    return [name for name, is_folder in found if is_folder]
