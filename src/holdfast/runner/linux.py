"""The two things we need from prctl(2), which Python does not offer.

``ctypes`` itself costs 3 ms to import, so this goes to the C module below it.
"""

from __future__ import annotations

import _ctypes

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


class _CInt(_ctypes._SimpleCData):
    _type_ = "i"


class _CFunction(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL
    _restype_ = _CInt


_prctl = _CFunction(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"))


def hide_from_peers() -> None:
    """Make this process untouchable for others of the same user: no ptrace, no /proc/PID/environ, mem or fd.

    The link's token is in our environment and memory; commands run under our own user id.
    """
    _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants: a daemonised grandchild stays below the shell that started it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
