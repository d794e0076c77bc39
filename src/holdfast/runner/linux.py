"""System calls that Python does not offer: two of prctl(2), and inotify.

``ctypes`` itself costs 3 ms to import, so this goes to the C module below it.
"""

from __future__ import annotations

import _ctypes
import os

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_IN_MODIFY = 2


class _CInt(_ctypes._SimpleCData):  # type: ignore[type-arg]  # not generic at run time
    _type_ = "i"


class _CFunction(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL
    _restype_ = _CInt


_libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is the program itself
_prctl = _CFunction(_ctypes.dlsym(_libc, "prctl"))
_inotify_init1 = _CFunction(_ctypes.dlsym(_libc, "inotify_init1"))
_inotify_add_watch = _CFunction(_ctypes.dlsym(_libc, "inotify_add_watch"))


def hide_from_peers() -> None:
    """Make this process untouchable for others of the same user: no ptrace, no /proc/PID/environ, mem or fd.

    The link's token is in our environment and memory; commands run under our own user id.
    """
    _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants: a daemonised grandchild stays below the shell that started it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def inotify() -> int:
    """A new inotify instance; -1 where there is none to be had."""
    return int(_inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def watch_writes(instance: int, path: str) -> int:
    """Have writes to ``path`` reported; returns the number that its events carry, or -1."""
    return int(_inotify_add_watch(instance, os.fsencode(path), _IN_MODIFY))
