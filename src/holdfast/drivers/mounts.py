"""Mounts of the host: whether there is one, and making them (root only; read-only views need Linux 5.12 and later).

In a sandbox's user namespace the host's root is nobody. Through an idmapped mount, files of host root belong to the
sandbox's own root, without a copy and without touching the originals. ``mount(8)`` learned this only recently, so
we make the system calls ourselves.
"""

import ctypes
import os
import subprocess
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
_VIEW = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
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
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        return any(_unescape(line.split(" ", 5)[4]) == wanted for line in lines)


def read_only() -> frozenset[str]:
    """Where an ext4 file system is mounted that takes no writes any more, though it was mounted for writing.

    Its journal could not be written. Newer kernels say ``emergency_ro``, older ones make the file system read-only,
    which shows behind the dash; what stands before it is how this mount was made.
    """
    found = set()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            mount, _, file_system = line.rstrip("\n").partition(" - ")
            kind, _source, options = file_system.split(" ", 2)
            fields = mount.split(" ")
            made_so = "ro" in fields[5].split(",")
            if kind == "ext4" and not made_so and {"ro", "emergency_ro"} & set(options.split(",")):
                found.add(_unescape(fields[4]))
    return frozenset(found)


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _syscall(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def mount_shifted(source: Path, target: Path, id_base: int, id_count: int) -> None:
    """Mount ``source`` read-only on ``target`` with owners shifted up by ``id_base``. Raises OSError if it cannot."""
    namespace = _user_namespace(id_base, id_count)
    try:
        _mount_view(source, target, _MountAttr(attr_set=_VIEW | _MOUNT_ATTR_IDMAP, userns_fd=namespace))
    finally:
        os.close(namespace)


def mount_read_only(source: Path, target: Path) -> None:
    """Mount ``source`` on ``target``, read-only and with set-id bits and devices of no effect. Raises OSError."""
    _mount_view(source, target, _MountAttr(attr_set=_VIEW))


def _mount_view(source: Path, target: Path, attributes: _MountAttr) -> None:
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    tree = _syscall(_SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags)
    try:
        size = ctypes.sizeof(attributes)
        _syscall(_SYS_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, ctypes.byref(attributes), size)
        _syscall(_SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def mount_overlay(lower: Path, upper: Path, work: Path, target: Path, *, user_xattr: bool = False) -> None:
    """Show ``lower`` on ``target``, with all changes kept in ``upper``. Raises OSError.

    ``user_xattr``: what the layer remembers is as in one that was mounted in a user namespace.
    """
    marks = ",userxattr" if user_xattr else ""
    options = os.fsencode(f"lowerdir={lower},upperdir={upper},workdir={work}{marks}")
    if _libc.mount(b"overlay", os.fsencode(target), b"overlay", _MS_NOSUID | _MS_NODEV, options) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(target))


def unmount_tree(top: Path) -> None:
    """Detach all that is mounted on ``top`` and below it, the last one first. Raises OSError."""
    prefix = f"{top.absolute()}/"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        found = [_unescape(line.split(" ", 5)[4]) for line in lines]
    for target in reversed([target for target in found if f"{target}/".startswith(prefix)]):
        if _libc.umount2(os.fsencode(target), _MNT_DETACH) != 0 and is_mounted(Path(target)):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), target)


def _user_namespace(id_base: int, id_count: int) -> int:
    """A descriptor of a user namespace with this mapping. It outlives the process that had to be in it."""
    holder = subprocess.Popen(
        ["unshare", "--user", "sh", "-c", "echo; read _"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise OSError(1, "cannot make a user namespace")
        for kind in ("uid", "gid"):
            Path(f"/proc/{holder.pid}/{kind}_map").write_text(f"0 {id_base} {id_count}\n")
        return os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        holder.kill()
        holder.communicate()
