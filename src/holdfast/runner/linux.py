"""System calls that Python does not offer: some of prctl(2), inotify, and a rename that replaces nothing.

``ctypes`` itself costs 3 ms to import, so this goes to the C module below it.
"""

from __future__ import annotations

import _ctypes
import errno
import os

_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100


class _CInt(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not generic at run time
    _type_ = "i"


class _CAddress(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not generic at run time
    _type_ = "P"


class _CSize(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not generic at run time
    _type_ = "L"


class _CFunction(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _CInt


_libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is the program itself


def _function(name: str, result: type | None = _CInt) -> _CFunction:
    found = _CFunction(_ctypes.dlsym(_libc, name))
    found.restype = result
    return found


_prctl = _function("prctl")


def hide_from_peers() -> None:
    """Make this process untouchable for others of the same user: no ptrace, no /proc/PID/environ, mem or fd.

    The link's token is in our environment and memory; commands run under our own user id.
    """
    _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def wipe_from_environment(name: str) -> None:
    """Overwrite the value of a variable where the kernel has put it, and where ``/proc/PID/environ`` shows it.

    For kernels on which ``hide_from_peers`` hides too little (gVisor). Python's own copy is not touched.
    """
    find = _function("getenv", _CAddress)
    address = find(os.fsencode(name))
    if address:
        fill = _function("memset", None)
        fill(_CAddress(address), ord("x"), len(os.fsencode(os.environ.get(name, ""))))


def take_name(name: str) -> None:
    """Be ``name`` in ``ps``, ``pkill`` and ``/proc/PID/cmdline``, where the interpreter and its arguments stand.

    Who types ``pkill -f python`` means programs of his own. The kernel shows the memory in which it has put the
    arguments; they end where the environment begins. A last byte that is not zero says that they are one text.
    """
    _prctl(_PR_SET_NAME, os.fsencode(name), 0, 0, 0)
    with open("/proc/self/cmdline", "rb") as file:
        shown = file.read()
    first = next(iter(os.environ), "")
    value = _function("getenv", _CAddress)(os.fsencode(first)) if first else None
    text = os.fsencode(name)
    if not value or len(text) + 2 > len(shown):
        return
    start = int(value) - len(os.fsencode(first)) - 1 - len(shown)
    if _function("memcmp")(_CAddress(start), shown, _CSize(len(shown))):
        return  # this kernel has put them elsewhere
    copy = _function("memcpy", None)
    copy(_CAddress(start), text.ljust(len(shown) - 1, b"\0") + b" ", _CSize(len(shown)))


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants: a daemonised grandchild stays below the shell that started it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def inotify() -> int:
    """Return a new inotify instance; -1 where there is none to be had."""
    return int(_function("inotify_init1")(os.O_NONBLOCK | os.O_CLOEXEC))


def watch(instance: int, path: str, mask: int) -> int:
    """Have the events of ``mask`` reported for ``path``; returns the number that they carry. Raises OSError."""
    number = int(_function("inotify_add_watch")(instance, os.fsencode(path), mask))
    if number < 0:
        code = _ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return number


def unwatch(instance: int, number: int) -> None:
    """Stop watching. It is no error if the watch is gone already."""
    _function("inotify_rm_watch")(instance, number)


def rename_to_new(source: str, target: str) -> bool:
    """Rename unless ``target`` exists. False if it does, or if that cannot be done in one step here. Raises OSError."""
    rename = _function("renameat2")
    if int(rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)) == 0:
        return True
    code = _ctypes.get_errno()
    if code in (errno.EEXIST, errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(code, os.strerror(code), source)
