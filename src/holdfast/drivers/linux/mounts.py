"""Mounts of the host: whether there is one, and making them (root only; read-only views need Linux 5.12 and later).

In a sandbox's user namespace the host's root is nobody. Through an idmapped mount, files of host root belong to the
sandbox's own root, without a copy and without touching the originals. ``mount(8)`` learned this only recently, so
we make the system calls ourselves.
"""

import ctypes
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2
_MOUNT_ATTR_NODEV = 4
_MOUNT_ATTR_IDMAP = 0x100000
_SAFE = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
_VIEW = _MOUNT_ATTR_RDONLY | _SAFE
_CLONE_NEWNS = 0x20000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_SLAVE = 0x80000
_MS_RDONLY = 1
_MS_NOSUID = 2
_MS_NODEV = 4
_MNT_DETACH = 2
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442  # the same on every architecture


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def is_mounted(path: Path) -> bool:
    """Whether something is mounted right there; also a directory of the same file system, which stat cannot tell."""
    wanted = str(path.absolute())
    return any(_unescape(line.split(" ", 5)[4]) == wanted for line in _mounts())


def read_only() -> frozenset[str]:
    """Return where an ext4 file system is mounted that takes no writes any more, though it was mounted for writing.

    Its journal could not be written. Newer kernels say ``emergency_ro``, older ones make the file system read-only,
    which shows behind the dash; what stands before it is how this mount was made.
    """
    found = set()
    for line in _mounts():
        mount, _, file_system = line.rstrip("\n").partition(" - ")
        kind, _source, options = file_system.split(" ", 2)
        fields = mount.split(" ")
        made_so = "ro" in fields[5].split(",")
        if kind == "ext4" and not made_so and {"ro", "emergency_ro"} & set(options.split(",")):
            found.add(_unescape(fields[4]))
    return frozenset(found)


def _mounts() -> Iterator[str]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        yield from lines


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _checked(result: int, where: Path | None = None) -> int:
    """Return the result of a call of libc, or raise its error, which is about ``where``."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), *([str(where)] if where else []))
    return result


def mount_view(source: Path, target: Path, namespace: int | None, *, writable: bool = False) -> None:
    """Mount ``source`` on ``target``, with owners shown as this user namespace maps them, or as they are.

    What belongs to an id that it does not map belongs to nobody there. Set-id bits and devices have no effect. What is
    read-only comes with all that is mounted below it. Raises OSError if it cannot.
    """
    attributes = _MountAttr(attr_set=_SAFE if writable else _VIEW)
    if namespace is not None:
        attributes.attr_set |= _MOUNT_ATTR_IDMAP
        attributes.userns_fd = namespace
    recursive = 0 if writable else _AT_RECURSIVE
    flags = _OPEN_TREE_CLONE | recursive | os.O_CLOEXEC
    tree = _checked(_libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags))
    try:
        size = ctypes.sizeof(attributes)
        where = _AT_EMPTY_PATH | recursive
        _checked(_libc.syscall(_SYS_MOUNT_SETATTR, tree, b"", where, ctypes.byref(attributes), size))
        there = os.fsencode(target)
        _checked(_libc.syscall(_SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, there, _MOVE_MOUNT_F_EMPTY_PATH))
    finally:
        os.close(tree)


def leave_mount_namespace() -> None:
    """Give this thread mounts of its own: what it mounts is seen by it and its children alone. Raises OSError."""
    if _libc.unshare(_CLONE_NEWNS) != 0 or _libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot make a mount namespace: {os.strerror(error)}")


def mount_memory(target: Path) -> None:
    """Mount a small file system in memory that everybody may pass through. Raises OSError."""
    options = b"mode=711,size=4m"
    _checked(_libc.mount(b"tmpfs", os.fsencode(target), b"tmpfs", _MS_NOSUID | _MS_NODEV, options), target)


def mask(base: Path, path: str, empty: Path) -> None:
    """Put nothing over what is at ``path`` below ``base``; what is behind a link there is left alone. Raises OSError.

    ``empty`` is a file, for all that is no directory.
    """
    there = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.split("/"):
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=there)
            os.close(there)
            there = inner
        mode, place = os.fstat(there).st_mode, b"/proc/self/fd/%d" % there
        if stat.S_ISDIR(mode):
            flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
            _checked(_libc.mount(b"tmpfs", place, b"tmpfs", flags, b"mode=755,size=4k"), base / path)
        elif not stat.S_ISLNK(mode):
            _checked(_libc.mount(os.fsencode(empty), place, None, _MS_BIND, None), base / path)
    except (FileNotFoundError, NotADirectoryError):
        return
    finally:
        os.close(there)


def bind(source: Path, target: Path) -> None:
    """Show one thing in another place, as it is. Raises OSError."""
    _checked(_libc.mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND, None), target)


def mount_overlay(lower: Path, upper: Path, work: Path, target: Path, *, user_xattr: bool = False) -> None:
    """Show ``lower`` on ``target``, with all changes kept in ``upper``. Raises OSError, also where that is a link.

    ``user_xattr``: what the layer remembers is as in one that was mounted in a user namespace.
    """
    marks = ",userxattr" if user_xattr else ""
    options = os.fsencode(f"lowerdir={lower},upperdir={upper},workdir={work}{marks}")
    there = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        place = b"/proc/self/fd/%d" % there
        _checked(_libc.mount(b"overlay", place, b"overlay", _MS_NOSUID | _MS_NODEV, options), target)
    finally:
        os.close(there)


def unmount_tree(top: Path) -> None:
    """Detach all that is mounted on ``top`` and below it, the last one first. Raises OSError."""
    prefix = f"{top.absolute()}/"
    found = [_unescape(line.split(" ", 5)[4]) for line in _mounts()]
    for target in reversed([target for target in found if f"{target}/".startswith(prefix)]):
        try:
            _checked(_libc.umount2(os.fsencode(target), _MNT_DETACH), Path(target))
        except OSError:
            if is_mounted(Path(target)):  # else somebody else was faster
                raise
