"""New user namespaces, held by a descriptor and by no process. Root only.

The kernel counts much of what programs take (watches, queued signals, message queues, locked memory) per user, and once
more for whoever made the user namespace that they live in. So each sandbox's namespace is made by an id of the host
that makes nothing else, and what one sandbox takes is missing to no other, and not to the host's root.

A namespace begins with a process. Ours does nothing but wait: it shares our memory, so that starting it takes a
fraction of a millisecond, and runs nothing of Python's.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from holdfast.drivers.blocking import run_in_new_thread
from holdfast.drivers.linux.ids import IdMap

_CLONE_VM = 0x100
_CLONE_NEWUSER = 0x10000000
_WALL = 0x40000000
_PR_SET_SECUREBITS = 28
_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_NO_SETUID_FIXUP = 1 << 2
_SETRESUID = {"x86_64": 117, "aarch64": 147, "riscv64": 147}
_STACK_BYTES = 65536

_libc = ctypes.CDLL(None, use_errno=True)
_one_at_a_time = threading.Lock()


def make(ids: Sequence[IdMap], owner: int = 0) -> int:
    """Return a descriptor of a new user namespace with these ids, which belongs to ``owner``. Raises OSError. This
    blocks."""
    if not owner:
        return _make_without_signals(ids, owner)
    with _one_at_a_time:
        dumpable = _libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
        try:
            # A thread of its own has an identity of its own, which ends with it.
            return run_in_new_thread(lambda: _make_without_signals(ids, owner))
        finally:
            _libc.prctl(_PR_SET_DUMPABLE, dumpable, 0, 0, 0)  # a change of identity takes it from all threads


def _make_without_signals(ids: Sequence[IdMap], owner: int) -> int:
    """What waits has our handlers for signals, and our memory: it must never run one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        if owner:
            _become(owner)
        return _make(ids)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become(owner: int) -> None:
    """Change the user of this thread alone, with all rights kept: some kernels let nobody else make user namespaces."""
    number = _SETRESUID.get(os.uname().machine)
    if number is None:
        return
    _libc.prctl(_PR_SET_SECUREBITS, ctypes.c_ulong(_NO_SETUID_FIXUP), 0, 0, 0)  # refused in some containers
    keep = ctypes.c_long(-1)
    _checked(_libc.syscall(ctypes.c_long(number), keep, ctypes.c_long(owner), keep))


def _make(ids: Sequence[IdMap]) -> int:
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    top = ctypes.c_void_p((ctypes.addressof(stack) + _STACK_BYTES) & ~0xF)
    wait = ctypes.cast(_libc.pause, ctypes.c_void_p)
    pid = _checked(_libc.clone(wait, top, ctypes.c_int(_CLONE_NEWUSER | _CLONE_VM), None))
    try:
        lines = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in ids)
        for kind in ("uid", "gid"):
            Path(f"/proc/{pid}/{kind}_map").write_text(lines)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, _WALL)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot make a user namespace: {os.strerror(error)}")
    return result
